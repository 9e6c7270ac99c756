"""Schedule search: schedules chosen by measuring candidates, instead of by the cost model.

Lowering measures nothing itself. It passes each kernel of known sizes whose template has other
candidates to the search as a `Tunable`, and emits it with the returned schedule. The program does
not change meanwhile: constants are packed after the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, symbols
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Kernel, used_symbols
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.strided import span
from kernelmill.lower.emit.context import mark_buffers
from kernelmill.lower.emit.packed import Rows
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.schedule.template import STATUS_BUFFER, GroupContext, Pack, Template

BY_MODEL = "cost model"
"""The label of the schedule that the cost model chooses."""

_PRETENDED = 1 << 30
"""Number of the first buffer that a draft pretends to have packed."""


@dataclass(frozen=True)
class Tunable:
    """A kernel that can be cut in several ways.

    kernel    as the cost model has it, without a name
    status    positions among its buffers of the status word
    work      estimated nanoseconds of all tasks on one core
    labels    the schedules to choose from, the cost model's first
    make      the kernel under the schedule of that label
    """

    kernel: Kernel
    status: tuple[int, ...]
    work: Dim
    labels: tuple[str, ...]
    make: Callable[[str], Kernel]


Pick = Callable[[Tunable], str]
"""The label of the schedule to use."""

Settle = Callable[[Hashable, Template[Any, Any], GroupContext], Candidate]
"""The chosen part of the schedule of a group, by the group's key."""


class ScheduleSearch:
    """The schedules of one graph's kernels; equal groups share one. `settle` is a `Settle`."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self._settled: dict[Hashable, Candidate] = {}

    def settle(
        self, key: Hashable, template: Template[Any, Any], context: GroupContext
    ) -> Candidate:
        """Return the candidate for the group's schedule. `key` tells groups apart."""
        if key not in self._settled:
            self._settled[key] = self._settle(template, context)
        return self._settled[key]

    def _settle(self, template: Template[Any, Any], context: GroupContext) -> Candidate:
        context = replace(context, pack=_pretend(context))
        draft = _draft(template, context, OPEN)
        kernel = draft.emitter.builder.kernel
        sizes = [buffer.elements for buffer in kernel.buffers]
        free = {name for dim in (*sizes, *context.group.extents.values()) for name in symbols(dim)}
        known = not used_symbols(kernel) & free and kernel.tasks != 0
        if not draft.candidates or not known or 0 in sizes:
            return OPEN
        others = {str(candidate): candidate for candidate in draft.candidates}
        status = tuple(n for n, b in enumerate(draft.emitter.buffers) if b == STATUS_BUFFER)

        def make(label: str) -> Kernel:
            return _draft(template, context, others.get(label, OPEN)).emitter.builder.kernel

        labels = (BY_MODEL, *others)
        return others.get(self.pick(Tunable(kernel, status, draft.work, labels, make)), OPEN)


@dataclass(frozen=True)
class _Draft:
    """A kernel that is never launched."""

    emitter: Emitter
    candidates: Sequence[Candidate]
    work: Dim


def _draft(template: Template[Any, Any], context: GroupContext, candidate: Candidate) -> _Draft:
    binding, machine = template.bind(context), context.machine
    packed = binding.pack(binding.packing(candidate))
    emitter = context.emitter(packed)
    spec = binding.spec(emitter, packed)
    schedule = template.schedule(spec, machine, candidate)
    template.emit(emitter, spec, schedule)
    mark_buffers(emitter.builder.kernel, machine)
    return _Draft(emitter, template.candidates(spec, schedule), template.cost(schedule))


def _pretend(context: GroupContext) -> Pack:
    """Return a packing function that leaves no trace in the program."""
    made: list[Value] = []

    def pack(view: Value, rows: Rows | None = None) -> Location | None:
        if not context.is_constant(view):
            return None
        made.append(view)
        strides = view.type.memory_strides
        number = _PRETENDED + len(made)
        return Location(number, view.type.dtype, strides, span(view.shape, strides))

    return pack
