"""Checks that a plan keeps its rules, so that running it cannot crash or read invalid memory.

Numbers refer to existing objects; every symbol has a value before its use; prepare steps make
packed buffers from long-lived arguments of constant shape; ATen only gets tensors; arena buffers
are inside the arena. The kernel verifier checks what a kernel does with its buffers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernelmill.core.dim import Dim, as_sym, product, symbols
from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import VerificationError
from kernelmill.core.scalar import NUMBERS, in_order, roots
from kernelmill.plan import ir
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.plan.ir import buffers_in, dims_in
from kernelmill.plan.text import print_step

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_ROLES, _KINDS = frozenset(InputRole), frozenset(ir.BufferKind)


def verify_plan(plan: ir.Plan, stage: str = "") -> None:
    """Raise VerificationError with the first broken rule; `stage` is the step that made it."""
    for problem in _PlanVerifier(plan).problems():
        raise VerificationError(f"plan {plan.name}: {problem}", stage)


class _PlanVerifier:
    """The checks of a plan: each method yields its part's faults, of which the first is raised."""

    def __init__(self, plan: ir.Plan) -> None:
        self.plan = plan
        self.kernels = {kernel.name for kernel in plan.kernels}
        self.known = {symbol.name for symbol in plan.symbols}
        self.bound: set[str] = set()
        # What has no elements needs no step that writes it.
        self.touched = {n for n, buffer in enumerate(plan.buffers) if 0 in buffer.shape}

    def problems(self) -> Iterator[str]:
        plan = self.plan
        yield from self._names()
        for number, entry in enumerate(plan.inputs):
            yield from _about(f"input {number}", self._input(entry))
        self.bound = set(_entry_symbols(plan))
        for number, buffer in enumerate(plan.buffers):
            yield from _about(f"buffer %{number}", self._buffer(buffer))
        yield from _about("the arena's size", self._dims([plan.arena_bytes]))
        for launch in plan.prepare:
            yield from _about_step("prepare step", launch, self._prepare(launch))
        for step in plan.steps:
            check = self._launch(step) if isinstance(step, ir.Launch) else self._aten(step)
            yield from _about_step("step", step, check)
        yield from self._orders()
        yield from self._supers()
        for call in plan.views:
            yield from _about_step("view", call, self._view(call))
        yield from _about("an equation", self._dims(d for pair in plan.equations for d in pair))
        for number, result in enumerate(plan.results):
            yield from _about(f"result {number}", self._result(result))
        given = {symbol.name for symbol in plan.symbols if symbol.value is None}
        for name in sorted(given - self.bound):
            yield f"nothing gives symbol {name} its value"

    # ---- header -----------------------------------------------------------------------------

    def _names(self) -> Iterator[str]:
        if len(self.kernels) < len(self.plan.kernels):
            yield "two kernels have the same name"
        if len(self.known) < len(self.plan.symbols):
            yield "two symbols have the same name"
        for name in (*self.kernels, *self.known):
            if _IDENTIFIER.fullmatch(name) is None:
                yield f"{name!r} is no name for a kernel or symbol"
        if in_order(self.plan.symbols) != self.plan.symbols:
            yield "a computed symbol comes before one that it needs"
        given = [entry.symbol for entry in self.plan.inputs if isinstance(entry, ir.SymbolInput)]
        if len(set(given)) < len(given):
            yield "two arguments give the same symbol"

    def _input(self, entry: ir.TensorInput | ir.SymbolInput) -> Iterator[str]:
        if isinstance(entry, ir.SymbolInput):
            if entry.symbol not in self.known:
                yield f"symbol {entry.symbol} is not one of the plan's"
            return
        if entry.role not in _ROLES:
            yield f"role {entry.role!r} is none of {', '.join(InputRole)}"
        if len(entry.shape) != len(entry.strides):
            yield "it has not one stride for each size"
        unknown = _names_in((*entry.shape, *entry.strides)) - self.known
        if unknown:
            yield f"symbol {min(unknown)} is not one of the plan's"

    def _buffer(self, buffer: ir.BufferSpec) -> Iterator[str]:
        if buffer.kind not in _KINDS:
            yield f"kind {buffer.kind!r} is none of {', '.join(ir.BufferKind)}"
        if len(buffer.shape) != len(buffer.strides):
            yield "it has not one stride for each size"
        if buffer.kind == ir.BufferKind.INPUT and not isinstance(
            self._argument(buffer), ir.TensorInput
        ):
            yield f"argument {buffer.source} is no tensor"
        if buffer.kind == ir.BufferKind.PACKED and _names_in((*buffer.shape, *buffer.strides)):
            yield "a packed buffer has a constant shape"
        if buffer.kind == ir.BufferKind.ARENA:
            yield from self._place(buffer)

    def _argument(self, buffer: ir.BufferSpec) -> object:
        inputs = self.plan.inputs
        return inputs[buffer.source] if 0 <= buffer.source < len(inputs) else None

    def _place(self, buffer: ir.BufferSpec) -> Iterator[str]:
        yield from self._dims((buffer.offset, *buffer.shape))
        elements = product(buffer.shape)
        reach = sum(((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True)), 1)
        if isinstance(elements, int) and isinstance(reach, int) and 0 < elements < reach:
            yield f"it has gaps: {elements} elements, the last in place {reach}"
        offset, size = buffer.offset, elements * buffer.dtype.bytes
        if isinstance(offset, int) and (offset < 0 or offset % ALIGNMENT):
            yield f"offset {offset} is not a multiple of {ALIGNMENT}"
        room = self.plan.arena_bytes - (offset + size)
        if isinstance(room, int) and room < 0:
            yield f"it ends {-room} bytes behind the arena's end"

    def _dims(self, dims: Iterable[Dim]) -> Iterator[str]:
        """Check dims that are evaluated now, and yield faults."""
        for name in sorted(roots(dims) - self.bound):
            yield f"symbol {name} has no value yet"

    # ---- steps ------------------------------------------------------------------------------

    def _prepare(self, launch: ir.Launch) -> Iterator[str]:
        yield from self._operands(launch)
        if _names_in((*launch.dims, launch.tasks, launch.scratch, launch.work)):
            yield "it runs before symbols have values"
        packed = {
            n
            for n in launch.buffers
            if n >= 0 and self.plan.buffers[n].kind == ir.BufferKind.PACKED
        }
        if not packed:
            yield "it makes no packed buffer"
        self.touched |= packed
        for number in set(launch.buffers) - packed - {-1}:
            buffer = self.plan.buffers[number]
            if buffer.kind != ir.BufferKind.INPUT:
                yield f"%{number} is neither an argument nor a packed buffer"
                continue
            source = self._argument(buffer)
            assert isinstance(source, ir.TensorInput)
            if source.role == InputRole.USER or _names_in((*source.shape, *source.strides)):
                yield f"argument {source.name!r} is no parameter or buffer of constant shape"

    def _launch(self, launch: ir.Launch) -> Iterator[str]:
        yield from self._operands(launch)
        yield from self._dims((*launch.dims, launch.tasks, launch.scratch, launch.work))
        for number in launch.buffers:
            if number < 0:
                continue
            buffer = self.plan.buffers[number]
            if buffer.kind == ir.BufferKind.PACKED and number not in self.touched:
                yield f"%{number} is made by no prepare step"
            if buffer.kind == ir.BufferKind.TENSOR:
                yield from self._dims((*buffer.shape, *buffer.strides))
                self.touched.add(number)

    def _orders(self) -> Iterator[str]:
        together = 0
        before: ir.Step | None = None
        for step in (*self.plan.prepare, *self.plan.steps):
            order = step.order if isinstance(step, ir.Launch) else ir.Order.AFTER
            together = 1 if order is ir.Order.AFTER else together + 1
            if together > ir.MOST_TOGETHER:
                yield f"`{print_step(step)}`: more than {ir.MOST_TOGETHER} launches side by side"
            alike = isinstance(before, ir.Launch) and before.tasks == getattr(step, "tasks", None)
            if order is ir.Order.BEHIND and not alike:
                yield f"`{print_step(step)}`: it has not the tasks of the launch before it"
            before = step

    def _operands(self, launch: ir.Launch) -> Iterator[str]:
        if launch.kernel not in self.kernels:
            yield f"kernel {launch.kernel} is not one of the plan's"
        for number in launch.buffers:
            if not -1 <= number < len(self.plan.buffers):
                yield f"there is no buffer %{number}"
        if -1 in launch.buffers and not self.plan.checks:
            yield "it reports a status, but the plan has no messages for one"

    def _aten(self, step: ir.AtenCall) -> Iterator[str]:
        for number in buffers_in((step.args, step.kwargs)):
            yield from self._aten_operand(number)
        try:
            yield from self._dims(dims_in((step.args, step.kwargs), self.plan.symbols))
        except ValueError as error:
            yield str(error)
        for symbol, result, _ in step.binds:
            if symbol not in self.known:
                yield f"symbol {symbol} is not one of the plan's"
            if not 0 <= result < max(1, len(step.results)):
                yield f"it has no result {result} to bind {symbol} from"
            self.bound.add(symbol)
        yield from self._aten_results(step, ir.BufferKind.TENSOR, "tensor of its own")

    def _view(self, call: ir.AtenCall) -> Iterator[str]:
        if call.binds:
            yield "a view binds no symbol"
        if len(list(buffers_in((call.args, call.kwargs)))) != 1:
            yield "a view is of one tensor"
        yield from self._aten(replace(call, results=()))
        yield from self._aten_results(call, ir.BufferKind.VIEW, "view")

    def _aten_results(self, step: ir.AtenCall, kind: ir.BufferKind, name: str) -> Iterator[str]:
        for number in (n for n in step.results if n != -1):
            if not 0 <= number < len(self.plan.buffers):
                yield f"there is no buffer %{number}"
            buffer = self.plan.buffers[number]
            if buffer.kind != kind:
                yield f"its result %{number} is no {name}"
            yield from self._dims((*buffer.shape, *buffer.strides))
            self.touched.add(number)

    def _aten_operand(self, number: int) -> Iterator[str]:
        if not 0 <= number < len(self.plan.buffers):
            yield f"there is no buffer %{number}"
        kind = self.plan.buffers[number].kind
        if kind == ir.BufferKind.ARENA:
            yield f"%{number} is in the arena: ATen takes tensors of their own"
        elif kind != ir.BufferKind.INPUT and number not in self.touched:
            yield f"%{number} has no contents yet"

    def _supers(self) -> Iterator[str]:
        free = 0
        names: set[str] = set()
        for super_kernel in self.plan.supers:
            what = f"super kernel {super_kernel.name}"
            if _IDENTIFIER.fullmatch(super_kernel.name) is None or super_kernel.name in (
                names | self.kernels
            ):
                yield f"{what}: its name is no name, or that of another"
            names.add(super_kernel.name)
            if not free <= super_kernel.first < super_kernel.last <= len(self.plan.steps):
                yield f"{what}: its steps are not there, or not its own"
            free = super_kernel.last
            yield from _about(what, self._super(super_kernel))

    def _super(self, super_kernel: ir.SuperKernel) -> Iterator[str]:
        steps = self.plan.steps[super_kernel.first : super_kernel.last]
        if not len(steps) == len(super_kernel.parts) == len(super_kernel.waits):
            yield "it has not one part and one list of waits for each launch"
        for step in steps:
            if not isinstance(step, ir.Launch):
                yield f"`{print_step(step)}` is no launch"
            elif not all(isinstance(d, int) for d in (*step.dims, step.tasks, step.work)):
                yield f"`{print_step(step)}` has no constant size"
        for begin, end in super_kernel.parts:
            if not (0 <= begin <= end <= ir.TEAM_PARTS and begin < ir.TEAM_PARTS):
                yield f"({begin}, {end}) is no part of a team"
        for number, waits in enumerate(super_kernel.waits):
            if any(not 0 <= awaited < number for awaited in waits):
                yield f"launch {number} waits for one that does not come before it"

    def _result(self, result: object) -> Iterator[str]:
        if isinstance(result, ir.DimResult):
            yield from self._dims([result.value])
            if result.kind not in ("", *NUMBERS):
                yield f"there are no numbers of kind {result.kind!r}"
        elif isinstance(result, ir.TensorResult):
            if not 0 <= result.buffer < len(self.plan.buffers):
                yield f"there is no buffer %{result.buffer}"
            kind = self.plan.buffers[result.buffer].kind
            if kind not in (ir.BufferKind.INPUT, ir.BufferKind.TENSOR, ir.BufferKind.VIEW):
                yield f"%{result.buffer} is neither an argument nor a tensor of its own"
            if kind != ir.BufferKind.INPUT and result.buffer not in self.touched:
                yield f"no step writes %{result.buffer}"


def _about(what: str, problems: Iterable[str]) -> Iterator[str]:
    return (f"{what}: {problem}" for problem in problems)


def _about_step(what: str, step: ir.Step, problems: Iterable[str]) -> Iterator[str]:
    # Only a problem needs the step's text.
    return (f"{what} `{print_step(step)}`: {problem}" for problem in problems)


def _names_in(dims: Iterable[Dim]) -> set[str]:
    return {name for dim in dims if not isinstance(dim, int) for name in symbols(dim)}


def _entry_symbols(plan: ir.Plan) -> Iterator[str]:
    """Yield the symbols that have a value when a call begins."""
    for entry in plan.inputs:
        if isinstance(entry, ir.SymbolInput):
            yield entry.symbol
        else:
            yield from (symbol.name for symbol in map(as_sym, entry.shape) if symbol is not None)
