"""Graphs lowered, compiled and run without passes and store, and the reference results beside them.

Two ways to run what lowering made: machine code through the runtime, and the kernel interpreter
launch by launch over the plan's buffers (small sizes only). Both are held against the graph
interpreter, which runs eager operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelmill.backend.entry import Backend
from kernelmill.compiler.report import GraphReport
from kernelmill.config import CompilerConfig
from kernelmill.core.dim import Dim, as_sym, evaluate
from kernelmill.core.dtype import BOOL, DType, to_torch
from kernelmill.core.target.machine import Machine, host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from kernelmill.graph.text import print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.numeric import numpy_dtype
from kernelmill.kernel.text import parse_kernel, print_kernel
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.lower.driver.program import lower_graph
from kernelmill.plan.ir import BufferSpec, DimResult, Launch, SymbolInput, TensorResult
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.plan.verifier import verify_plan
from kernelmill.runtime.program import load
from tests import guard_pages
from tests.emulation import emulator
from tests.machine_code import MachineCode, compiled_object, runs_here
from tests.tolerances import mismatch

Argument = Tensor | int
Output = Tensor | int | None
Run = Callable[[Kernel, Mapping[str, np.ndarray], Mapping[str, int]], None]


def reported(
    name: str = "kernelmill", config: CompilerConfig | None = None
) -> tuple[Any, list[GraphReport]]:
    """A backend, and the reports of what it has compiled so far: none for another's name."""
    reports: list[GraphReport] = []
    if name != "kernelmill":
        return name, reports
    return Backend(config, on_compiled=lambda made: reports.append(made.report)), reports


# ---- making ---------------------------------------------------------------------------------


def graph(
    build: Callable[..., Value | Sequence[Value]], *inputs: tuple[DType, Sequence[Dim]]
) -> Graph:
    """A graph whose results are what `build(builder, *inputs)` returns."""
    b = GraphBuilder("g")
    results = build(b, *(b.input(f"x{number}", *kind) for number, kind in enumerate(inputs)))
    b.graph.results = [results] if isinstance(results, Value) else list(results)
    return b.graph


def whole(dtype: DType, *shape: int, low: int = -4, high: int = 5) -> Tensor:
    """Random whole numbers: sums and products of a few of them are exact in every dtype."""
    if dtype == BOOL:
        return torch.randint(0, 2, shape).bool()
    return torch.randint(0 if dtype.kind == "uint" else low, high, shape).to(to_torch(dtype))


def lowered(graph: Graph, target: Machine | None = None, separate: bool = False) -> Lowered:
    """The graph's plan and kernels; all of it is verified, its texts are read back, and what is
    compiled or interpreted are the kernels that were read."""
    verify_graph(graph)
    result = lower_graph(graph, target or host(), separate)
    verify_plan(result.plan, "lowering")
    text = print_plan(result.plan)
    assert print_plan(parse_plan(text)) == text
    read: dict[str, Kernel] = {}
    for name, kernel in result.kernels.items():
        verify_kernel(kernel, "lowering")
        text = print_kernel(kernel)
        read[name] = parse_kernel(text)
        assert print_kernel(read[name]) == text
    return replace(result, kernels=read)


def program(made: Lowered, target: Machine | None = None) -> Callable[..., Sequence[Output]]:
    """What lowering made as machine code, ready to be called: a `Program`, or what does the same
    with the emulator or between guard pages. Code that this processor cannot run is compiled, and
    the kernel interpreter runs in its place."""
    target = target or host()
    here = runs_here(target.isa)
    if here and (emulator() is not None or guard_pages.is_on()):
        run = partial(run_machine_code, target)
        return lambda *inputs: executed(made, inputs, run)
    objects = {name: compiled_object(kernel, target.isa) for name, kernel in made.kernels.items()}
    return load(made.plan, objects) if here else lambda *inputs: interpreted(made, inputs)


def run_compiled(
    graph: Graph, inputs: Sequence[Argument], target: Machine | None = None, separate: bool = False
) -> list[Output]:
    """The graph's results from machine code. Updated inputs are written in place."""
    return list(program(lowered(graph, target, separate), target)(*inputs))


# ---- comparing ------------------------------------------------------------------------------


def check(
    graph: Graph,
    *inputs: Argument,
    targets: Sequence[Machine] = (),
    separate: bool = False,
    interpret: bool = False,
) -> Lowered:
    """Machine code for this host and for `targets` agrees with eager, updated inputs too.

    With `interpret` the kernel interpreter has to agree as well. Returns what was lowered for the
    host.
    """
    expected_inputs = _copies(inputs)
    expected = run_graph(graph, expected_inputs)
    first = lowered(graph, None, separate)
    for target in (host(), *targets):
        made = first if target == host() else lowered(graph, target, separate)
        given = _copies(inputs)
        _compare(graph, str(target.isa.cpu), program(made, target)(*given), expected)
        _compare(graph, f"inputs, {target.isa.cpu}", given, expected_inputs)
    if interpret:
        given = _copies(inputs)
        _compare(graph, "interpreter", interpreted(first, given), expected)
        _compare(graph, "inputs, interpreter", given, expected_inputs)
    return first


def _copies(inputs: Sequence[Argument]) -> list[Argument]:
    """Copies with the same strides, gaps and overlaps."""
    return [_copy(x) if isinstance(x, Tensor) else x for x in inputs]


def _copy(tensor: Tensor) -> Tensor:
    storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).clone()
    return storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _compare(graph: Graph, who: str, actual: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(actual) == len(expected)
    for number, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(theirs, Tensor):
            wrong = mismatch(mine, theirs) or _strides(mine, theirs)
            assert wrong is None, f"{who}, {number}: {wrong}\n{print_graph(graph)}"
        else:
            assert mine == theirs, f"{who}, {number}: {mine}\n{print_graph(graph)}"


def _strides(actual: Tensor, expected: Tensor) -> str | None:
    """Where the elements of two tensors lie differently in memory."""
    longer = [d for d, size in enumerate(actual.shape) if size > 1]
    ours, theirs = ([tensor.stride(d) for d in longer] for tensor in (actual, expected))
    if ours == theirs or actual.numel() == 0:
        return None
    return f"strides {actual.stride()} instead of {expected.stride()}"


# ---- the kernel interpreter over a plan -----------------------------------------------------


def interpreted(made: Lowered, inputs: Sequence[Argument]) -> list[Output]:
    """The plan's results, its launches run by the kernel interpreter (no ATen calls)."""
    return executed(made, inputs, run_kernel)


def run_machine_code(
    target: Machine, kernel: Kernel, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]
) -> None:
    """Compile a kernel for a processor, this or an emulated one, and run all its tasks."""
    code = MachineCode(compiled_object(kernel, target.isa), kernel.name)
    memory = [arrays[buffer.name] for buffer in kernel.buffers]
    tasks, scratch = evaluate(kernel.tasks, dims), evaluate(kernel.scratch, dims)
    code(memory, [dims[symbol.name] for symbol in kernel.dims], [(0, tasks)], scratch)


def executed(made: Lowered, inputs: Sequence[Argument], run: Run) -> list[Output]:
    """The plan's results, its launches run by `run`."""
    plan = made.plan
    sizes: dict[str, int] = {}
    for entry, argument in zip(plan.inputs, inputs, strict=True):
        if isinstance(entry, SymbolInput):
            assert isinstance(argument, int)
            sizes[entry.symbol] = argument
        else:
            assert isinstance(argument, Tensor)
            for dim, size in zip(entry.shape, argument.shape, strict=True):
                symbol = as_sym(dim)
                if symbol is not None:
                    sizes[symbol.name] = size
    arena = np.full(evaluate(plan.arena_bytes, sizes), 0xA5, np.uint8)
    memory = [_memory(spec, inputs, sizes, arena) for spec in plan.buffers]
    status = np.zeros(1, np.int64)
    for step in (*plan.prepare, *plan.steps):
        assert isinstance(step, Launch)
        kernel = made.kernels[step.kernel]
        arrays = (status if n == -1 else memory[n] for n in step.buffers)
        names = (buffer.name for buffer in kernel.buffers)
        values = (evaluate(dim, sizes) for dim in step.dims)
        dims = dict(zip((symbol.name for symbol in kernel.dims), values, strict=True))
        run(kernel, dict(zip(names, arrays, strict=True)), dims)
    if status[0]:
        raise IndexError(plan.checks[int(status[0]) - 1])
    return [_output(made, result, memory, inputs, sizes) for result in plan.results]


def _memory(
    spec: BufferSpec, inputs: Sequence[Argument], sizes: dict[str, int], arena: np.ndarray
) -> np.ndarray:
    """A buffer as a 1-d array; bf16 as its bits."""
    if spec.kind == "input":
        tensor = inputs[spec.source]
        assert isinstance(tensor, Tensor)
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        flat = tensor.as_strided((span if tensor.numel() else 0,), (1,))
        return (flat.view(torch.uint16) if flat.dtype == torch.bfloat16 else flat).numpy()
    shape = [evaluate(size, sizes) for size in spec.shape]
    strides = [evaluate(stride, sizes) for stride in spec.strides]
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    span = 0 if 0 in shape else span
    if spec.kind == "arena":
        offset = evaluate(spec.offset, sizes)
        return arena[offset : offset + span * spec.dtype.bytes].view(numpy_dtype(spec.dtype))
    return np.zeros(span, numpy_dtype(spec.dtype))


def _output(
    made: Lowered,
    result: TensorResult | DimResult | None,
    memory: Sequence[np.ndarray],
    inputs: Sequence[Argument],
    sizes: dict[str, int],
) -> Output:
    if result is None:
        return None
    if isinstance(result, DimResult):
        return evaluate(result.value, sizes)
    spec = made.plan.buffers[result.buffer]
    if spec.kind == "input":
        return inputs[spec.source]
    flat = torch.from_numpy(memory[result.buffer]).view(to_torch(spec.dtype))
    shape = [evaluate(size, sizes) for size in spec.shape]
    return flat.as_strided(shape, [evaluate(stride, sizes) for stride in spec.strides])
