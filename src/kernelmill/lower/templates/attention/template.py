"""The attention template: online softmax over blocks of keys, in one kernel.

With few query rows keys and values are read in place, with many they are packed. A kernel of a
symbolic number of rows has a body for each: a class of its schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelmill.core.dim import Dim, bounds, evaluate
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.schedule.classes import SizeClass, emit_by_size
from kernelmill.lower.schedule.template import GroupContext, Template
from kernelmill.lower.templates.attention.bind import AttentionBinding
from kernelmill.lower.templates.attention.bind_flex import FlexBinding
from kernelmill.lower.templates.attention.block_sizes import FEW_ROWS
from kernelmill.lower.templates.attention.schedule import (
    AttentionSchedule,
    attention_candidates,
    emit_attention,
    plan_attention,
)
from kernelmill.lower.templates.attention.spec import AttentionSpec

_EXACT_ROWS = (1, 2)
"""Numbers of rows that have a body of their own: decoding, with a speculated token or without."""

_ROWS_AT_A_TIME = 4
"""Up to `FEW_ROWS` rows are worked on so many at a time; those past the end repeat the last."""


AttentionClasses = tuple[SizeClass[AttentionSchedule], ...]
"""By the number of query rows, smallest first; the last is for all others."""


def plan_attention_classes(
    spec: AttentionSpec, machine: Machine, candidate: Candidate = OPEN
) -> AttentionClasses:
    """Plan the classes, smallest first; one, with the candidate's sizes, for a known number of
    rows.

    Raises UnsupportedError when a depth is symbolic or zero.
    """
    rest = plan_attention(spec, machine, candidate)
    if isinstance(spec.rows, int):
        return (SizeClass(None, rest, rest.tasks),)
    small: list[SizeClass[AttentionSchedule]] = []
    for rows in _EXACT_ROWS:
        one = plan_attention(replace(spec, rows=rows), machine)
        small.append(SizeClass(rows, one, one.tasks, exact=True))
    few = plan_attention(spec, machine, OPEN, _ROWS_AT_A_TIME)
    small.append(SizeClass(FEW_ROWS, few, few.tasks))
    least = bounds(spec.rows)[0] or 0
    kept = (one for one in small if one.most is not None and one.most >= least)
    return (*kept, SizeClass(None, rest, rest.tasks))


def attention_loss(
    spec: AttentionSpec,
    classes: AttentionClasses,
    sizes: Mapping[str, int],
    machine: Machine,
) -> float:
    """Return the `Loss` (lower/schedule/template.py): 0 where only batch dims are symbolic, and the
    sizes alone would get the same schedule."""
    if not (isinstance(spec.rows, int) and isinstance(spec.keys, int)):
        return math.inf
    known = replace(spec, batch=tuple(evaluate(size, sizes) for size in spec.batch))
    alone = plan_attention(known, machine)
    shared = classes[-1].schedule
    same = replace(shared, row_blocks=0, tasks=0, work=0) == replace(
        alone, row_blocks=0, tasks=0, work=0
    )
    return 0.0 if same else math.inf


def emit_attention_classes(
    builder: KernelBuilder, spec: AttentionSpec, classes: AttentionClasses
) -> None:
    """Write the kernel's body with a branch for each class, and set `tasks` and `scratch`. The
    builder must be empty but for buffers."""
    builder.kernel.scratch = max(one.schedule.scratch_bytes for one in classes)
    if len(classes) == 1:
        builder.set_tasks(classes[0].schedule.tasks)
        emit_attention(builder, spec, classes[0].schedule)
        return

    def body(schedule: AttentionSchedule, task: Dim, rows: Dim) -> None:
        emit_attention(builder, replace(spec, rows=rows), schedule, task)

    emit_by_size(builder, spec.rows, classes, body)


class AttentionTemplate(Template[AttentionSpec, AttentionClasses]):
    """softmax(Q K^T * scale + mask) V. A schedule is a body for each class of numbers of query
    rows, the last for all others."""

    name = "attention"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is around an attention node."""
        return context.group.kind is GroupKind.ATTENTION

    def bind(self, context: GroupContext) -> AttentionBinding | FlexBinding:
        """Bind the node's operands and mask."""
        seed = context.group.seed
        flex = seed is not None and seed.op == "flex_attention"
        return FlexBinding(context) if flex else AttentionBinding(context)

    def schedule(
        self, spec: AttentionSpec, machine: Machine, candidate: Candidate
    ) -> AttentionClasses:
        """Plan a schedule for each class of sizes. UnsupportedError for a depth of 0."""
        return plan_attention_classes(spec, machine, candidate)

    def candidates(self, spec: AttentionSpec, schedule: AttentionClasses) -> Sequence[Candidate]:
        """Return other blocks of rows and keys."""
        return attention_candidates(spec, schedule[-1].schedule)

    def cost(self, schedule: AttentionClasses) -> Dim:
        """Return estimated nanoseconds of all tasks on one core."""
        return schedule[-1].schedule.work

    def loss(
        self, spec: AttentionSpec, schedule: AttentionClasses, sizes: Mapping[str, int],
        machine: Machine,
    ) -> float:  # fmt: skip
        """Return 0 where rows and keys are known, and blocks are those of the sizes alone."""
        return attention_loss(spec, schedule, sizes, machine)

    def emit(self, emitter: Emitter, spec: AttentionSpec, schedule: AttentionClasses) -> None:
        """Write the kernel's body, its tasks and scratch."""
        emit_attention_classes(emitter.builder, spec, schedule)
