"""The regions of an attention kernel's scratch."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.lower.templates.attention.block_sizes import round_up
from kernelmill.lower.templates.attention.blocks import AttentionBlocks
from kernelmill.lower.templates.attention.spec import AttentionSpec


@dataclass(frozen=True)
class ScratchLayout:
    """Offsets and row lengths in elements of the accumulator's dtype; vectors never straddle rows.

    queries  [rows][depth]             scaled query rows, padded to whole vectors
    keys     [panels][depth][width]    a block of keys transposed, `width` side by side
    values   [keys][value_depth]       a block of values
    scores   [tile rows][keys]         scores, then their exponentials, of one register tile's rows
    sums     [rows][value_depth]       weighted sums of values so far
    peaks, totals  [rows]              largest score, and sum of exponentials relative to it
    factors  [tile rows]               what older sums of a tile's rows are scaled by
    weights  [tile][keys / 32]         of a tiled schedule, the exponentials in tiles of bf16

    In a tiled schedule queries, keys and values are in tiles too, each TILE_WORDS elements:
    [row tile][tile along the depth], [tile of keys][tile along the depth] and
    [tile along the value's depth][tile along the keys].
    """

    query_row: int
    value_row: int
    score_row: int
    width: int
    queries: int
    keys: int
    values: int
    scores: int
    sums: int
    peaks: int
    totals: int
    factors: int
    weights: int
    elements: int


def scratch_layout(spec: AttentionSpec, schedule: AttentionBlocks) -> ScratchLayout:
    """Lay the regions out one after another, each at a whole vector."""
    assert isinstance(spec.depth, int) and isinstance(spec.value_depth, int)
    lanes, kept = schedule.lanes, schedule.regions(spec)
    query_row, value_row = round_up(spec.depth, lanes), round_up(spec.value_depth, lanes)
    sizes = (
        kept.queries,
        kept.keys,
        kept.values,
        schedule.tile_rows * schedule.keys,
        kept.rows * value_row,
        round_up(kept.rows, lanes),
        round_up(kept.rows, lanes),
        round_up(schedule.tile_rows, lanes),
        kept.weights,
    )
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    return ScratchLayout(query_row, value_row, schedule.keys, kept.width, *offsets)
