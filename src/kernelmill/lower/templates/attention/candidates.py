"""What of an attention's schedule may be settled from outside, and what is worth trying."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelmill.core.dim import ceildiv, product
from kernelmill.lower.templates.attention.schedule import (
    AttentionSchedule,
    Packed,
    Streamed,
    Tiled,
)
from kernelmill.lower.templates.attention.spec import AttentionSpec

_LEAST_KEYS = 32
_MOST_KEYS = 1024


@dataclass(frozen=True)
class AttentionCandidate:
    """Query rows of a task, and keys of a block."""

    rows: int
    keys: int

    def __str__(self) -> str:
        return f"rows={self.rows} keys={self.keys}"


def with_candidate(
    schedule: AttentionSchedule, spec: AttentionSpec, candidate: AttentionCandidate
) -> AttentionSchedule:
    """The schedule with these sizes; where keys and values stream, the rows stay as they are."""
    single = isinstance(spec.keys, int) and spec.keys <= candidate.keys
    match schedule:
        case Streamed():
            return replace(schedule, keys=candidate.keys, single_block=single)
        case Packed() | Tiled():
            blocks = ceildiv(spec.rows, candidate.rows)
            return replace(
                schedule, rows=candidate.rows, row_blocks=blocks,
                tasks=product(spec.batch) * blocks, keys=candidate.keys, single_block=single,
            )  # fmt: skip


def attention_candidates(
    spec: AttentionSpec, schedule: AttentionSchedule
) -> list[AttentionCandidate]:
    """What to try in place of the cost model's schedule; none where a size is symbolic."""
    if not all(isinstance(size, int) for size in (*spec.batch, spec.rows, spec.keys)):
        return []
    rows, step = {schedule.rows}, schedule.lanes
    if not isinstance(schedule, Streamed):
        step, tile = schedule.panel * schedule.lanes, schedule.tile_rows
        rows |= {_round_up(schedule.rows // 2, tile), _round_up(schedule.rows * 2, tile)}
    keys = {schedule.keys, _round_up(schedule.keys // 2, step), _round_up(schedule.keys * 2, step)}
    assert isinstance(spec.rows, int) and isinstance(spec.keys, int)
    most_rows, most_keys = _round_up(spec.rows, schedule.tile_rows), _round_up(spec.keys, step)
    return [
        AttentionCandidate(row, key)
        for row in sorted(rows)
        for key in sorted(keys)
        if (row, key) != (schedule.rows, schedule.keys)
        and row <= max(most_rows, schedule.rows)
        and min(_LEAST_KEYS, schedule.keys) <= key <= min(_MOST_KEYS, most_keys)
    ]


def _round_up(size: int, step: int) -> int:
    return max(1, -(-size // step)) * step
