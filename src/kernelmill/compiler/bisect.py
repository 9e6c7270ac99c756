"""The first kernel of a program whose results differ from torch's, and that launch as a folder.

The graph runs operator by operator in torch, and launch by launch compiled. Before each launch the
results of the last one are replaced by torch's values. So each launch has correct operands, and the
first that differs is at fault. Torch has no values for weights packed in a kernel's layout: if a
launch that reads them differs, the kernel interpreter says whether the launch that packed them is
at fault.

A launch as a folder: texts, data, and a script that runs it and shows the difference.

report.txt    the difference, the operators, and the line in the user's code
kernel.txt    the kernel, as text
plan.txt      a plan of this one launch; its inputs are the launch's buffers
buffer0.npy   the buffers before the launch, in the order of the plan; bfloat16 as its bits
right2.npy    the expected contents of buffer 2 after the launch
show.py       compiles kernel.txt, runs it, and prints the difference
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kernelmill import codegen
from kernelmill.compiler.calibration import machine_for
from kernelmill.compiler.objects import obtain, requests_of
from kernelmill.compiler.pipeline import compile_graph, optimise
from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, evaluate
from kernelmill.core.dtype import to_torch
from kernelmill.core.target.isa import target_isa
from kernelmill.graph.effects import is_assertion
from kernelmill.graph.interpreter import run_graph, run_values
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import parse_kernel, print_kernel
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.lower.driver.placement import Call, Placed, Work
from kernelmill.lower.driver.program import lower_traced
from kernelmill.lower.elements.emitter import Location
from kernelmill.plan.ir import BufferKind, BufferSpec, KernelRef, Launch, Plan, TensorInput
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.runtime.program import load
from kernelmill.store.store import open_store

RELATIVE = {
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
"""Relative to an element plus the mean size of all, as sums of cancelling terms need."""


def difference(actual: Tensor, expected: Tensor, factor: float = 1.0) -> str:
    """Describe how `actual` differs, or "". NaN equals NaN; integers are exact. `factor` widens."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return (
            f"{actual.dtype} {list(actual.shape)} instead of {expected.dtype} "
            f"{list(expected.shape)}"
        )
    relative = RELATIVE.get(expected.dtype, 0.0) * factor
    wide = torch.float64 if expected.dtype.is_floating_point else expected.dtype
    if expected.dtype.is_complex:
        return difference(torch.view_as_real(actual), torch.view_as_real(expected), factor)
    ours, theirs = actual.to(wide), expected.to(wide)
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    if relative:
        size = theirs.abs()
        finite = size[torch.isfinite(size)]
        mean = finite.mean() if finite.numel() else 0.0
        same |= ((ours - theirs).abs() <= relative * (size + mean)) & torch.isfinite(size)
    if bool(same.all()):
        return ""
    return _described(ours, theirs, same)


def _described(ours: Tensor, theirs: Tensor, same: Tensor) -> str:
    wrong = (~same).nonzero()
    first = tuple(wrong[0].tolist())
    return (
        f"{len(wrong)} of {same.numel()} elements differ; the first is {list(first)}: "
        f"{ours[first].item():.9g} instead of {theirs[first].item():.9g}"
    )


Argument = Tensor | int
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Difference:
    """The first difference. `stage` is "kernel"; "passes" when the rewritten graph differs already;
    "program" when every launch alone is correct. Only a kernel has a `case`."""

    stage: str
    graph: str
    text: str
    kernel: KernelRef | None = None
    value: str = ""
    case: Case | None = None


@dataclass(frozen=True)
class Case:
    """A single launch: a plan of one step whose arguments are the launch's buffers, the kernel, the
    arguments before it, and the expected contents of those it writes, by number."""

    plan: Plan
    kernel: Kernel
    arguments: tuple[Tensor, ...]
    expected: Mapping[int, Tensor]


def first_difference(
    graph: Graph, arguments: Sequence[Argument], config: CompilerConfig, factor: float = 1.0
) -> Difference | None:
    """Return the first difference for these arguments, which are not written to. `factor` widens
    the tolerance. Raises UnsupportedError as lowering does."""
    given = _copies(arguments)
    expected = _after(run_graph(graph, given), given)
    given = _copies(arguments)
    rewritten, _ = optimise(graph, config)
    found = _different(_after(run_graph(rewritten, given), given), expected, factor)
    if found:
        return Difference("passes", graph.name, found)
    wrong = _Launches(rewritten, arguments, config, factor).first_wrong()
    if wrong is not None:
        return wrong
    given = _copies(arguments)
    found = _different(
        _after(compile_graph(graph, config).program.call(*given), given), expected, factor
    )
    return Difference("program", graph.name, found) if found else None


def _copies(arguments: Sequence[Argument]) -> list[Argument]:
    return [_copy(a) if isinstance(a, Tensor) else a for a in arguments]


def _copy(tensor: Tensor) -> Tensor:
    """Copy a tensor's whole storage, keeping strides, gaps and overlaps."""
    tensor = tensor.detach()
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).clone()
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _after(results: Sequence[object], given: Sequence[Argument]) -> list[Tensor]:
    """Return the tensors among the results, and the arguments as they are after the call."""
    return [one for one in (*results, *given) if isinstance(one, Tensor)]


def _different(actual: Sequence[Tensor], expected: Sequence[Tensor], factor: float) -> str:
    found = (difference(a, e, factor) for a, e in zip(actual, expected, strict=True))
    return next((text for text in found if text), "")


def _array(tensor: Tensor) -> np.ndarray:
    """Return the memory of a tensor from its first element on, flat; bfloat16 as its bits."""
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    flat = flat[tensor.storage_offset() :]
    return (flat.view(torch.uint16) if flat.dtype == torch.bfloat16 else flat).numpy()


_MOST_INTERPRETED = 1 << 22
"""Limit on the elements of an interpreted launch's arguments: more take minutes."""


class _Launches:
    """The launches of a graph, one at a time, in memory where no two buffers overlap."""

    def __init__(
        self, graph: Graph, arguments: Sequence[Argument], config: CompilerConfig, factor: float
    ) -> None:
        option = config.experimental_config.kernel_meta_dir
        store = open_store(option, config.on_untrusted)
        machine = machine_for(store, config.target)
        self.factor = factor
        self.lowered: Lowered
        self.placed: Placed
        self.lowered, self.placed = lower_traced(graph, machine)
        plan = self.lowered.plan
        requests = requests_of(plan, self.lowered.kernels)
        self.objects = {
            name: entry.object for name, entry in obtain(requests, store, machine.isa).items()
        }
        self.refs = {ref.name: ref for ref in plan.kernels}
        whole = self.placed.prepared.graph
        self.values, self.sizes = run_values(whole, _copies(arguments))
        self.memory = [self._new(spec, arguments) for spec in plan.buffers]
        self.packed: dict[int, tuple[Launch, Case]] = {}  # by buffer

    def _new(self, spec: BufferSpec, arguments: Sequence[Argument]) -> Tensor:
        if spec.kind is BufferKind.INPUT:
            argument = arguments[spec.source]
            assert isinstance(argument, Tensor)
            return _copy(argument)
        shape, strides = self._numbers(spec.shape), self._numbers(spec.strides)
        return torch.empty_strided(shape, strides, dtype=to_torch(spec.dtype)).fill_(0)

    def _numbers(self, dims: Sequence[Dim]) -> list[int]:
        return [evaluate(dim, self.sizes) for dim in dims]

    def first_wrong(self) -> Difference | None:
        """Return the difference of the first launch whose result differs from torch's."""
        plan = self.lowered.plan
        constant: dict[frozenset[int], Work] = {}
        steps: list[Work | Call] = []
        for placed in self.placed.steps:
            if isinstance(placed, Work) and placed.constant:
                constant[frozenset(where.buffer for where in placed.targets.values())] = placed
            else:
                steps.append(placed)
        for launch in plan.prepare:
            wrong = self._step(launch, constant.get(frozenset(self._written(launch))))
            if wrong is not None:
                return wrong
        for step, work in zip(plan.steps, self._with_steps(steps), strict=True):
            if isinstance(work, Call):
                for value in work.node.results:
                    if value in self.placed.locations:
                        self._view(self.placed.locations[value], value).copy_(self.values[value])
            elif isinstance(step, Launch):
                wrong = self._step(step, work)
                if wrong is not None:
                    return wrong
        return None

    def _with_steps(self, works: Sequence[Work | Call]) -> list[Work | Call]:
        """Return the works that the plan has steps for: not a view that is only returned, nor the
        last assertions, as many as come after the steps."""
        plan = self.lowered.plan
        views = {n for n, b in enumerate(plan.buffers) if b.kind is BufferKind.VIEW}
        late = sum(not call.results for call in plan.views)
        kept: list[Work | Call] = []
        for work in reversed(works):
            if isinstance(work, Call) and late and is_assertion(work.node):
                late -= 1
            elif isinstance(work, Work) or not views & {*work.results}:
                kept.insert(0, work)
        return kept

    def _step(self, launch: Launch, work: Work | None) -> Difference | None:
        """Run a launch and compare its results, then replace them by torch's values."""
        numbers = list(dict.fromkeys(number for number in launch.buffers if number >= 0))
        before = tuple(_copy(self.memory[number]) for number in numbers)
        plan = self._alone(launch, numbers)
        load(plan, self.objects)(*(self.memory[number] for number in numbers))
        kernel = self.lowered.kernels[launch.kernel]
        if work is None:
            case = Case(plan, kernel, before, self._outputs(launch, numbers, self._written(launch)))
            self.packed.update(dict.fromkeys(self._written(launch), (launch, case)))
            return None
        targets = {
            value: where for value, where in work.targets.items() if self._truth(value) is not None
        }
        texts = {
            value: difference(self._view(where, value), self._right(value), self.factor)
            for value, where in targets.items()
        }
        for value, where in targets.items():
            self._view(where, value).copy_(self._right(value))
        wrong = next((value for value, text in texts.items() if text), None)
        if wrong is None:
            return None
        for number in numbers:
            if number in self.packed and (packing := self._wrong_packing(*self.packed[number])):
                return packing
        buffers = {where.buffer for where in targets.values()}
        case = Case(plan, kernel, before, self._outputs(launch, numbers, buffers))
        return self._found(launch, texts[wrong], str(wrong), case)

    def _found(self, launch: Launch, text: str, value: str, case: Case) -> Difference:
        name, ref = self.lowered.plan.name, self.refs[launch.kernel]
        return Difference("kernel", name, text, ref, value, case)

    def _outputs(
        self, launch: Launch, numbers: Sequence[int], buffers: Collection[int]
    ) -> dict[int, Tensor]:
        """Return copies of those of the launch's arguments that are among the buffers."""
        places = enumerate(numbers)
        return {n: _copy(self.memory[number]) for n, number in places if number in buffers}

    def _wrong_packing(self, launch: Launch, case: Case) -> Difference | None:
        """Return the difference of a packing launch from the kernel interpreter, if any."""
        if sum(tensor.numel() for tensor in case.arguments) > _MOST_INTERPRETED:
            return None
        given = [_copy(argument) for argument in case.arguments]
        numbers = list(dict.fromkeys(number for number in launch.buffers if number >= 0))
        arrays = dict(zip(numbers, map(_array, given), strict=True))
        pairs = zip(case.kernel.buffers, launch.buffers, strict=True)
        memory = {b.name: arrays.get(n, np.zeros(1, np.int64)) for b, n in pairs}
        names = (symbol.name for symbol in case.kernel.dims)
        run_kernel(case.kernel, memory, dict(zip(names, self._numbers(launch.dims), strict=True)))
        for place, actual in case.expected.items():
            text = difference(actual, given[place], self.factor)
            if text:
                right = replace(case, expected={place: given[place]})
                return self._found(launch, text, "packed weights", right)
        return None

    def _written(self, launch: Launch) -> set[int]:
        kernel = self.lowered.kernels[launch.kernel]
        pairs = zip(kernel.buffers, launch.buffers, strict=True)
        return {number for buffer, number in pairs if buffer.access != "in" and number >= 0}

    def _alone(self, launch: Launch, numbers: Sequence[int]) -> Plan:
        """Return a plan of the launch alone, with numbers for all sizes."""
        plan = self.lowered.plan
        specs = [self._argument(plan.buffers[number], n) for n, number in enumerate(numbers)]
        written = self._written(launch)
        inputs = tuple(
            TensorInput(f"buffer{n}", s.dtype, s.shape, s.strides, updated=number in written)
            for n, (number, s) in enumerate(zip(numbers, specs, strict=True))
        )
        places = {number: n for n, number in enumerate(numbers)}
        buffers = tuple(places.get(number, -1) for number in launch.buffers)
        tasks, scratch, work = self._numbers((launch.tasks, launch.scratch, launch.work))
        dims = tuple(self._numbers(launch.dims))
        alone = Launch(launch.kernel, buffers, dims, tasks, scratch, work)
        return Plan(
            "launch", (), inputs, tuple(specs), (), (alone,), (), (self.refs[launch.kernel],),
            checks=plan.checks,
        )  # fmt: skip

    def _argument(self, spec: BufferSpec, place: int) -> BufferSpec:
        shape, strides = tuple(self._numbers(spec.shape)), tuple(self._numbers(spec.strides))
        return replace(
            spec, kind=BufferKind.INPUT, shape=shape, strides=strides, source=place, offset=0
        )

    # ---- values ----------------------------------------------------------------------------------

    def _truth(self, value: Value) -> Tensor | None:
        """Return torch's value. A copy of a value in another layout has that value."""
        known = self.values.get(value)
        node = value.node
        if known is None and node is not None and node.op == "layout":
            return self._truth(node.operands[0])
        return known

    def _right(self, value: Value) -> Tensor:
        found = self._truth(value)
        assert found is not None
        return found

    def _view(self, where: Location, value: Value) -> Tensor:
        memory = self.memory[where.buffer]
        offset = memory.storage_offset() + evaluate(where.offset, self.sizes)
        shape, strides = self._numbers(value.shape), self._numbers(where.strides)
        return memory.as_strided(shape, strides, offset)


_SHOW = '''"""Compiles kernel.txt, runs it, and prints what differs from right*.npy."""

from pathlib import Path

from kernelmill.compiler.bisect import run_case

for line in run_case(Path(__file__).parent) or ["no difference"]:
    print(line)
'''


def write_case(folder: Path, found: Difference, case: Case) -> None:
    """Write the folder of a case, creating it. Files of an earlier case in it are replaced."""
    os.makedirs(folder, exist_ok=True)
    for old in (*folder.glob("buffer*.npy"), *folder.glob("right*.npy")):
        old.unlink()
    (folder / "report.txt").write_text(describe(found) + "\n")
    (folder / "kernel.txt").write_text(print_kernel(case.kernel))
    (folder / "plan.txt").write_text(print_plan(case.plan))
    for number, tensor in enumerate(case.arguments):
        np.save(folder / f"buffer{number}.npy", _to_numpy(tensor))
    for number, tensor in case.expected.items():
        np.save(folder / f"right{number}.npy", _to_numpy(tensor))
    (folder / "show.py").write_text(_SHOW)


def describe(found: Difference) -> str:
    """Return a description of a difference in a few lines."""
    if found.kernel is None:
        where = {
            "import": "The graphs that torch captured, or their import, differ from the model",
            "passes": f"The rewrites of {found.graph} change its results",
            "program": f"Each launch of {found.graph} is right by itself, but not the whole: look "
            "at super kernels, memory that launches share, or threads",
        }[found.stage]
        return f"{where}: {found.text}"
    code = found.kernel.origin
    return "\n".join([
        f"{found.kernel.title} in {found.graph} differs from eager first",
        f"  operators  {', '.join(found.kernel.operators)}",
        f"  value      {found.value}: {found.text}",
        *([f"  code       {code}"] if code else []),
    ])  # fmt: skip


def run_case(folder: Path) -> list[str]:
    """Compile the kernel of a folder and run it; return a line for each buffer that is wrong."""
    kernel = parse_kernel((folder / "kernel.txt").read_text())
    plan = parse_plan((folder / "plan.txt").read_text())
    given = [_argument(folder, plan, number) for number in range(len(plan.inputs))]
    load(plan, {kernel.name: codegen.compile_kernel(kernel, target_isa(None))})(*given)
    lines: list[str] = []
    for number, actual in enumerate(given):
        path = folder / f"right{number}.npy"
        if path.exists():
            text = difference(actual, _from_numpy(path, actual.dtype))
            lines += [f"buffer {number}: {text}"] if text else []
    return lines


def _argument(folder: Path, plan: Plan, number: int) -> Tensor:
    entry = plan.inputs[number]
    assert isinstance(entry, TensorInput)
    shape, strides = ([evaluate(dim, {}) for dim in dims] for dims in (entry.shape, entry.strides))
    tensor = torch.empty_strided(shape, strides, dtype=to_torch(entry.dtype))
    return tensor.copy_(_from_numpy(folder / f"buffer{number}.npy", tensor.dtype))


def _to_numpy(tensor: Tensor) -> np.ndarray:
    dense = tensor.contiguous()
    return (dense.view(torch.uint16) if dense.dtype == torch.bfloat16 else dense).numpy()


def _from_numpy(path: Path, dtype: torch.dtype) -> Tensor:
    loaded = torch.from_numpy(np.load(path, allow_pickle=False))
    return loaded.view(dtype) if dtype == torch.bfloat16 else loaded
