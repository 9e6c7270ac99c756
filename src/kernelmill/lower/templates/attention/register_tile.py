"""The register tile: sums of products of rows' elements with vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Operand, Value
from kernelmill.lower.templates.attention.context import AttentionContext, Tile


def multiply_tile(
    context: AttentionContext,
    stop: Dim,
    left: Callable[[Dim], Sequence[Value]],
    right: Callable[[Dim], Sequence[Value]],
    initial: Sequence[Sequence[Operand]],
) -> list[list[Value]]:
    """initial[i][j] + the sum over k < stop of left(k)[i] * right(k)[j].

    `left` gives one scalar for each row, `right` the vectors of the tile.
    """
    width = len(initial[0])
    carry = [(context.vector, value) for row in initial for value in row]
    with context.builder.loop(0, stop, carry=carry, prefix="k") as loop:
        vectors = right(loop.index)
        sums: list[Value] = []
        for i, factor in enumerate(left(loop.index)):
            carried = loop.carried[i * width : (i + 1) * width]
            for vector, total in zip(vectors, carried, strict=True):
                sums.append(context.multiply_add(factor, vector, total))
        loop.carry(*sums)
    return [list(loop.results[i : i + width]) for i in range(0, len(carry), width)]


class ValuePanel(Protocol):
    """Gives vectors first..first+width-1 of the value of the block's key number k."""

    def __call__(self, k: Dim, *, first: int, width: int) -> Sequence[Value]: ...


def add_weighted_values(
    context: AttentionContext, tile: Tile, count: Dim, values: ValuePanel
) -> None:
    """sums[row] = sums[row] * factor + the weighted values of the block's first `count` keys."""
    scratch, lanes = context.scratch, context.schedule.lanes

    def weights(k: Dim) -> list[Value]:
        return [context.read(context.score_offset(i, k)) for i in range(tile.count)]

    first = 0
    for width in context.schedule.value_panels:
        offsets = [
            scratch.sums + (tile.first + i) * scratch.value_row + first * lanes
            for i in range(tile.count)
        ]
        initial = [_older_sums(context, i, offset, width) for i, offset in enumerate(offsets)]
        panel = partial(values, first=first, width=width)
        sums = multiply_tile(context, count, weights, panel, initial)
        for offset, row in zip(offsets, sums, strict=True):
            for j, total in enumerate(row):
                context.write(offset + j * lanes, total)
        first += width


def _older_sums(
    context: AttentionContext, tile_row: int, offset: Dim, width: int
) -> Sequence[Operand]:
    """What earlier blocks summed up for one row, relative to the new peak."""
    if context.schedule.single_block:
        return [0.0] * width
    factor = context.read(context.scratch.factors + tile_row)
    return [context.builder.op("mul", old, factor) for old in context.read_vectors(offset, width)]
