"""What of an attention's schedule may be settled from outside, and what is worth trying."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelmill.core.dim import ceildiv, product
from kernelmill.lower.templates.attention.schedule import AttentionSchedule
from kernelmill.lower.templates.attention.spec import AttentionSpec

_LEAST_KEYS = 32
_MOST_KEYS = 1024


@dataclass(frozen=True)
class AttentionTiling:
    """Query rows of a task, and keys of a block."""

    rows: int
    keys: int

    def __str__(self) -> str:
        return f"rows={self.rows} keys={self.keys}"


def with_tiling(
    schedule: AttentionSchedule, spec: AttentionSpec, tiling: AttentionTiling
) -> AttentionSchedule:
    """The schedule with these sizes; where keys and values stream, rows are given."""
    single = isinstance(spec.keys, int) and spec.keys <= tiling.keys
    if schedule.streamed:
        return replace(schedule, keys=tiling.keys, single=single)
    blocks = ceildiv(spec.rows, tiling.rows)
    return replace(
        schedule, rows=tiling.rows, row_blocks=blocks, tasks=product(spec.batch) * blocks,
        keys=tiling.keys, single=single,
    )  # fmt: skip


def attention_tilings(spec: AttentionSpec, schedule: AttentionSchedule) -> list[AttentionTiling]:
    """What to try in place of the cost model's schedule; none where a size is symbolic."""
    if not all(isinstance(size, int) for size in (*spec.batch, spec.rows, spec.keys)):
        return []
    step = schedule.lanes if schedule.streamed else schedule.panel * schedule.lanes
    keys = {schedule.keys, _whole(schedule.keys // 2, step), _whole(schedule.keys * 2, step)}
    rows = {schedule.rows}
    if not schedule.streamed:
        tile = schedule.tile_rows
        rows |= {_whole(schedule.rows // 2, tile), _whole(schedule.rows * 2, tile)}
    assert isinstance(spec.rows, int) and isinstance(spec.keys, int)
    most_rows, most_keys = _whole(spec.rows, schedule.tile_rows), _whole(spec.keys, step)
    return [
        AttentionTiling(row, key)
        for row in sorted(rows)
        for key in sorted(keys)
        if (row, key) != (schedule.rows, schedule.keys)
        and row <= max(most_rows, schedule.rows)
        and min(_LEAST_KEYS, schedule.keys) <= key <= min(_MOST_KEYS, most_keys)
    ]


def _whole(size: int, step: int) -> int:
    return max(1, -(-size // step)) * step
