"""The attention template: online softmax over blocks of keys, in one kernel.

With few query rows keys and values are read in place, with many they are packed. A kernel of a
symbolic number of rows has a body for each: a class of its schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from kernelmill.core.dim import Dim, bounds, evaluate
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.schedule.template import GroupContext, SizeClass, Template, emit_by_size
from kernelmill.lower.templates.attention.bind import AttentionBinding, FlexBinding
from kernelmill.lower.templates.attention.blocks import AttentionBlocks, scratch_layout
from kernelmill.lower.templates.attention.packed import Packed
from kernelmill.lower.templates.attention.spec import FEW_ROWS, AttentionSpec, round_up
from kernelmill.lower.templates.attention.streamed import Streamed
from kernelmill.lower.templates.attention.tiled import Tiled

AttentionSchedule = Streamed | Tiled | Packed
"""In order of preference; the last one accepts every attention."""

_KINDS: tuple[type[AttentionSchedule], ...] = get_args(AttentionSchedule)

_LEAST_KEYS = 32
_MOST_KEYS = 1024


def plan_attention(
    spec: AttentionSpec,
    machine: Machine,
    candidate: Candidate = OPEN,
    rows_at_a_time: int = 0,
) -> AttentionSchedule:
    """The schedule for this attention on this processor, with the candidate's sizes. Depends
    on nothing else.

    With `rows_at_a_time` that for a symbolic number of rows which is small: so many at a time.
    Raises UnsupportedError when a depth is symbolic or zero.
    """
    if not (isinstance(spec.depth, int) and isinstance(spec.value_depth, int)):
        raise UnsupportedError(f"attention over symbolic depths {spec.depth}, {spec.value_depth}")
    if spec.depth == 0 or spec.value_depth == 0:
        raise UnsupportedError("attention over vectors without elements")
    if isinstance(spec.rows, int) and spec.rows <= FEW_ROWS:
        rows_at_a_time = max(spec.rows, 1)
    plans = (kind.plan(spec, machine, rows_at_a_time) for kind in _KINDS)
    schedule = next(plan for plan in plans if plan is not None)
    if candidate.rows or candidate.keys:
        rows = round_up(candidate.rows or schedule.rows, schedule.tile_rows)
        keys = round_up(candidate.keys or schedule.keys, schedule.key_step)
        schedule = schedule.with_sizes(spec, rows, keys)
    scratch = scratch_layout(spec, schedule).elements * spec.accumulate.bytes
    work = schedule.estimated_work(spec, machine)
    return replace(schedule, scratch_bytes=scratch, work=work)


def emit_attention(
    builder: KernelBuilder,
    spec: AttentionSpec,
    schedule: AttentionSchedule,
    task: Dim | None = None,
) -> None:
    """Append the body of one task. The kernel must have the schedule's `tasks` and `scratch`; with
    `task`, the number of one of them, more tasks than the schedule's."""
    together = schedule.heads_together
    grid = (*spec.batch[:-1], spec.batch[-1] // together, schedule.row_blocks)
    *outer, block = task_index(builder, grid, task)
    batch, first = (*outer[:-1], outer[-1] * together), block * schedule.rows
    schedule.emit(builder, spec, batch, first)


def attention_candidates(spec: AttentionSpec, schedule: AttentionBlocks) -> list[Candidate]:
    """Return candidates to try besides the cost model's schedule; none if a size is symbolic."""
    if not all(isinstance(size, int) for size in (*spec.batch, spec.rows, spec.keys)):
        return []
    step = schedule.key_step
    keys = {schedule.keys, round_up(schedule.keys // 2, step), round_up(schedule.keys * 2, step)}
    assert isinstance(spec.rows, int) and isinstance(spec.keys, int)
    most_rows, most_keys = round_up(spec.rows, schedule.tile_rows), round_up(spec.keys, step)
    return [
        Candidate(rows=row, keys=key)
        for row in sorted(schedule.row_choices)
        for key in sorted(keys)
        if (row, key) != (schedule.rows, schedule.keys)
        and row <= max(most_rows, schedule.rows)
        and min(_LEAST_KEYS, schedule.keys) <= key <= min(_MOST_KEYS, most_keys)
    ]


_EXACT_ROWS = (1, 2)
"""Numbers of rows that have a body of their own: decoding, with a speculated token or without."""

_ROWS_AT_A_TIME = 4
"""Number of rows that are computed together if there are at most `FEW_ROWS`; those past the end
repeat the last."""


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
        return schedule[-1].schedule.work

    def loss(
        self, spec: AttentionSpec, schedule: AttentionClasses, sizes: Mapping[str, int],
        machine: Machine,
    ) -> float:  # fmt: skip
        """Return 0 where rows and keys are known, and blocks are those of the sizes alone."""
        return attention_loss(spec, schedule, sizes, machine)

    def emit(self, emitter: Emitter, spec: AttentionSpec, schedule: AttentionClasses) -> None:
        emit_attention_classes(emitter.builder, spec, schedule)
