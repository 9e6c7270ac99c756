"""Scores that a model's own functions modify and mask, after they were scaled."""

from __future__ import annotations

from kernelmill.core.dim import Dim
from kernelmill.lower.templates.attention.context import AttentionContext, Row, Tile
from kernelmill.lower.templates.attention.spec import MaskKind


def modify_scores(
    context: AttentionContext, tile: Tile, start: Dim, count: Dim, vectors: Dim
) -> None:
    """Replace the tile's scores by modified ones, and by -inf where the mask hides a key; scores,
    count and vectors as `exponentiate` has them."""
    b, spec = context.builder, context.spec
    masked = spec.mask is not None and spec.mask_kind is MaskKind.CHOOSE
    if not masked and spec.modify is None:
        return

    def rows(masked: bool) -> None:
        with b.loop(0, tile.count, prefix="t") as loop:
            _modify_row(context, tile.row(loop.index), loop.index, start, count, vectors, masked)

    if not masked or context.masking is None:
        rows(masked)
        return
    with b.when(context.masking) as statement:
        rows(True)
    if spec.modify is not None:
        with b.otherwise(statement):
            rows(False)


def _modify_row(
    context: AttentionContext, row: Row, number: Dim, start: Dim, count: Dim, vectors: Dim,
    masked: bool,
) -> None:  # fmt: skip
    b, spec, lanes = context.builder, context.spec, context.schedule.lanes
    with b.loop(0, vectors, prefix="v") as loop:
        first = loop.index * lanes
        exists = None if context.whole_blocks else context.lanes_below(count - first)
        offset = context.score_offset(number, first)
        score = context.read(offset, lanes)
        lane = context.lane(lanes, exists)
        n = lane.index + start + first
        if spec.modify is not None:
            score = spec.modify(b, row.batch, row.m, n, lane, score)
        if masked and spec.mask is not None:
            mask = spec.mask(b, row.batch, row.m, n, lane)
            score = b.op("select", mask, score, float("-inf"))
        context.write(offset, score)
