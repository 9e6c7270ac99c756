"""What is worth trying in place of the cost model's schedule of an attention."""

from __future__ import annotations

from kernelmill.lower.templates.attention.block_sizes import round_up
from kernelmill.lower.templates.attention.blocks import AttentionBlocks, AttentionCandidate
from kernelmill.lower.templates.attention.spec import AttentionSpec

_LEAST_KEYS = 32
_MOST_KEYS = 1024


def attention_candidates(
    spec: AttentionSpec, schedule: AttentionBlocks
) -> list[AttentionCandidate]:
    """What to try in place of the cost model's schedule; none where a size is symbolic."""
    if not all(isinstance(size, int) for size in (*spec.batch, spec.rows, spec.keys)):
        return []
    step = schedule.key_step
    keys = {schedule.keys, round_up(schedule.keys // 2, step), round_up(schedule.keys * 2, step)}
    assert isinstance(spec.rows, int) and isinstance(spec.keys, int)
    most_rows, most_keys = round_up(spec.rows, schedule.tile_rows), round_up(spec.keys, step)
    return [
        AttentionCandidate(row, key)
        for row in sorted(schedule.row_choices)
        for key in sorted(keys)
        if (row, key) != (schedule.rows, schedule.keys)
        and row <= max(most_rows, schedule.rows)
        and min(_LEAST_KEYS, schedule.keys) <= key <= min(_MOST_KEYS, most_keys)
    ]
