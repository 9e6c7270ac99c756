"""Choices between the static and the dynamic kernels of an operator.

A choice is made once, by measuring both, and kept in the kernel store as an entry of type "Choice".
Its key is the operator's text; it has "static" or "dynamic" instead of machine code. Installed
packages contain their choices.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch

from kernelmill.codegen import key_of
from kernelmill.compiler.objects import obtain, requests_of
from kernelmill.compiler.progress import ProgressLine
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import Key
from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import InputRole, to_torch
from kernelmill.core.errors import KernelmillError, UnsupportedError
from kernelmill.core.target.isa import host_isa
from kernelmill.core.target.machine import Machine
from kernelmill.core.workers import Workers, WorkItem
from kernelmill.graph.ir import Graph, Input
from kernelmill.graph.text import print_graph
from kernelmill.lower.driver.at_sizes import lowered_at_sizes
from kernelmill.lower.driver.lowered import Lowered, LoweredOperator
from kernelmill.lower.driver.operators import Operator
from kernelmill.lower.driver.program import lower_graph
from kernelmill.lower.elements.strided import span
from kernelmill.plan.ir import TensorResult
from kernelmill.runtime.calls.caller import ProgramResult
from kernelmill.runtime.program import Program, load
from kernelmill.store.entry import Entry, NewEntry
from kernelmill.store.store import Store

_ROUNDS = 7
_ROUND_NS = 200_000
"""Time in which a round repeats short launches; a long launch is a round by itself."""


def example_arguments(graph: Graph) -> list[torch.Tensor]:
    """Return tensors for a graph without symbols: random floats, and zeros, valid indices.

    torch's own random numbers are left alone.
    """
    generator = torch.Generator().manual_seed(0)
    found: list[torch.Tensor] = []
    for entry in graph.tensor_inputs():
        kind = entry.value.type
        shape = tuple(evaluate(size, {}) for size in kind.shape)
        strides = tuple(evaluate(stride, {}) for stride in kind.memory_strides)
        memory = torch.zeros(evaluate(span(shape, strides), {}), dtype=to_torch(kind.dtype))
        if kind.dtype.is_float and kind.dtype.bits >= 16:
            memory.normal_(generator=generator)
        found.append(memory.as_strided(shape, strides))
    return found


def compare(first: Program, second: Program, arguments: list[torch.Tensor]) -> tuple[float, float]:
    """Return nanoseconds of the launches of a call, for both: the minimum of several alternating
    rounds, on one thread. The rest of a call is the same for both and much longer than short
    kernels. More threads would measure how busy the machine is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = first.call(*arguments)
        second.call(*arguments)
        _write_to(second, results)  # where the memory lies is no merit of a kernel
        calls = min(_calls(first), _calls(second))
        rounds = [(_round(first, calls), _round(second, calls)) for _ in range(_ROUNDS)]
    finally:
        torch.set_num_threads(threads)
    del results  # until here the launches wrote there
    return min(one for one, _ in rounds), min(other for _, other in rounds)


def _write_to(program: Program, results: Sequence[ProgramResult]) -> None:
    """Let a program write its results to the memory of the other program's."""
    (frame,) = program.engine.pool.frames
    for result, tensor in zip(program.plan.results, results, strict=True):
        assert isinstance(result, TensorResult) and isinstance(tensor, torch.Tensor)
        frame.set_address(result.buffer, tensor.data_ptr())


def _calls(program: Program) -> int:
    calls, taken = 1, _round(program, 1)
    while calls * taken < _ROUND_NS / 4:
        calls *= 4
        taken = _round(program, calls)
    return max(1, round(_ROUND_NS / taken))


def _round(program: Program, calls: int) -> float:
    """Return the mean time of so many calls on this thread, apart from other load."""
    start = time.thread_time_ns()
    program.launch_again(calls)
    return (time.thread_time_ns() - start) / calls


TYPE = "Choice"
_SLACK = 1.02
"""Factor of time up to which a static kernel counts as equal: noise."""


@dataclass(frozen=True)
class KernelChoice:
    """A choice of `kernel`, "static" or "dynamic". Times: ns a launch, 0 when not measured."""

    kernel: str
    static_ns: float
    dynamic_ns: float


@dataclass(frozen=True)
class FailedOperator:
    """An operator that got no static kernel, and why."""

    operator: Operator
    reason: str


def choice_key(operator: Operator, machine: Machine) -> Key:
    """Return the key of an operator's choice. The operator's sizes must be numbers."""
    assert operator.graph is not None
    return key_of(
        machine.isa, operator=print_graph(operator.graph, names=False), machine=machine.caches
    )


class Choices:
    """Choices for one machine, in one store.

    `runs_here`: its programs are called on this machine, so that kernels can be measured; None: if
    it is the host of this process.
    """

    def __init__(self, store: Store, machine: Machine, runs_here: bool | None = None) -> None:
        self.store = store
        self.machine = machine
        self.runs_here = machine.isa == host_isa() if runs_here is None else runs_here
        self.library = library(machine)

    def packaged(self, operator: Operator) -> tuple[Operator, KernelChoice, Library] | None:
        """Return the choice of an installed package, and the kernels of its machine. Packages whose
        code needs instructions that the machine lacks are skipped.

        The operator returned is the one asked for, or the same with its parameters as ordinary
        arguments, since the recording may not have known their role.
        """
        for package in self.store.packages:
            if not self.machine.isa.runs(package.machine.isa):
                continue
            for form in _forms(operator):
                entry = self.store.packaged(package, choice_key(form, package.machine), TYPE)
                if entry is not None:
                    return form, _choice(entry), library(package.machine)
        return None

    def known(self, operator: Operator) -> KernelChoice | None:
        """Return an earlier choice, if any."""
        entry = self.store.get(choice_key(operator, self.machine), TYPE)
        return None if entry is None else _choice(entry)

    def make(self, operators: list[Operator], jobs: int) -> list[FailedOperator]:
        """Compile static kernels, `jobs` at a time, and choose for each operator.

        An operator that fails stops none of the others; it keeps its dynamic kernel.
        """
        failures: list[FailedOperator] = []
        good: list[Operator] = []
        progress = ProgressLine()
        try:
            with Workers(max(1, jobs)) as workers:
                submitted = [workers.submit(partial(self._compile, one)) for one in operators]
                for done, (operator, job) in enumerate(zip(operators, submitted, strict=True), 1):
                    workers.wait([job])
                    try:
                        job.result()
                        good.append(operator)
                    except KernelmillError as error:
                        failures.append(FailedOperator(operator, str(error)))
                    progress.show(done, len(operators))
        finally:
            progress.close()
        return failures + self._choose_all(good)

    def _choose_all(self, operators: list[Operator]) -> list[FailedOperator]:
        failures: list[FailedOperator] = []
        progress = ProgressLine(doing="measuring", what="operators")
        try:
            # Another thread writes, as the disk is slow and must not disturb measurements.
            with Workers(1) as keeping:
                kept: list[WorkItem[None]] = []
                for done, operator in enumerate(operators, 1):
                    try:
                        keep = partial(self._keep, operator, self._choose(operator))
                        kept.append(keeping.submit(keep))
                    except (KernelmillError, RuntimeError) as error:
                        failures.append(FailedOperator(operator, str(error)))
                    progress.show(done, len(operators))
                for each in kept:
                    keeping.wait([each])
                for each in kept:
                    each.result()
        finally:
            progress.close()
        return failures

    def entries(self, operator: Operator) -> list[Entry]:
        """Return the store entries that a program needs for an operator: choice and kernels."""
        key = choice_key(operator, self.machine)
        entry = self.store.get(key, TYPE)
        if entry is None:
            return []
        static = _choice(entry).kernel == "static"
        lowered = self._static(operator) if static else self._dynamic(operator)
        assert lowered is not None
        return [entry, *self.obtain(lowered).values()]

    # ---- making ----------------------------------------------------------------------------------

    def _static(self, operator: Operator) -> Lowered:
        assert operator.graph is not None
        lowered = self.library.lower(operator.graph)
        if lowered is None:
            raise UnsupportedError(f"{operator.type} has no static kernel")
        return lowered

    def _dynamic(self, operator: Operator) -> Lowered | None:
        return None if operator.general is None else self.library.lower(operator.general)

    def obtain(self, lowered: Lowered) -> dict[str, Entry]:
        """Return the entries of kernels by name, compiling those that the store lacks."""
        return obtain(requests_of(lowered.plan, lowered.kernels), self.store, self.machine.isa)

    def _compile(self, operator: Operator) -> None:
        self.obtain(self._static(operator))
        dynamic = self._dynamic(operator)
        if dynamic is not None:
            self.obtain(dynamic)

    def _choose(self, operator: Operator) -> KernelChoice:
        dynamic = self._dynamic(operator)
        if dynamic is not None and self.runs_here:
            return self._measured(operator, dynamic)
        return KernelChoice("static", 0, 0)

    def _keep(self, operator: Operator, choice: KernelChoice) -> None:
        made = NewEntry(
            choice.kernel.encode(),
            {"op_info": {"Type": operator.type, "attrs": {"origin": operator.origin}}},
            {"static_ns": choice.static_ns, "dynamic_ns": choice.dynamic_ns},
        )
        self.store.put(choice_key(operator, self.machine), TYPE, made)

    def _measured(self, operator: Operator, dynamic: Lowered) -> KernelChoice:
        """Measure both as a captured program launches them: the dynamic one with known sizes."""
        assert operator.graph is not None
        static = self._static(operator)
        sizes = {name: evaluate(dim, {}) for name, dim in operator.values.items()}
        known = lowered_at_sizes(dynamic, sizes, dynamic.plan.name)
        static_ns, dynamic_ns = compare(
            self._program(static),
            self._program(known),
            example_arguments(operator.graph),
        )
        faster = static_ns <= dynamic_ns * _SLACK
        kernel = "static" if faster else "dynamic"
        return KernelChoice(kernel, round(static_ns, 1), round(dynamic_ns, 1))

    def _program(self, lowered: Lowered) -> Program:
        return load(lowered.plan, {n: entry.object for n, entry in self.obtain(lowered).items()})


def _choice(entry: Entry) -> KernelChoice:
    ns: Any = entry.launch
    return KernelChoice(entry.object.decode(), float(ns["static_ns"]), float(ns["dynamic_ns"]))


def _forms(operator: Operator) -> list[Operator]:
    graph = operator.graph
    assert graph is not None
    if all(entry.role == InputRole.USER for entry in graph.tensor_inputs()):
        return [operator]
    inputs = [replace(e, role=InputRole.USER) if isinstance(e, Input) else e for e in graph.inputs]
    return [operator, replace(operator, graph=replace(graph, inputs=inputs))]


class Library:
    """Operators lowered for one machine, by the text of their graphs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._lowered: dict[str, Lowered | None] = {}

    def dynamic(self, operator: Operator) -> LoweredOperator | None:
        """Return kernels for all sizes; None for an operator that has none."""
        if operator.general is None:
            return None
        lowered = self.lower(operator.general)
        return None if lowered is None else LoweredOperator(lowered, operator.values)

    def lower(self, graph: Graph) -> Lowered | None:
        """Return the operator's plan and kernels; None when it has no lowering in this form."""
        text = print_graph(graph, names=False)
        if text not in self._lowered:
            try:
                self._lowered[text] = lower_graph(graph, self.machine)
            except UnsupportedError:
                self._lowered[text] = None
        return self._lowered[text]


@cache
def library(machine: Machine) -> Library:
    """Return the library of a machine; there is one in a process."""
    return Library(machine)
