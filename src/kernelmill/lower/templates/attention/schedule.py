"""The schedules of an attention, the choice among them, and the code of tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from kernelmill.core.dim import Dim
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.templates.attention.block_sizes import FEW_ROWS, round_up
from kernelmill.lower.templates.attention.blocks import AttentionBlocks, scratch_layout
from kernelmill.lower.templates.attention.packed import Packed
from kernelmill.lower.templates.attention.spec import AttentionSpec
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
