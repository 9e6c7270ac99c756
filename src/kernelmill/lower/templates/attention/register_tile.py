"""The register tile: sums of products of rows' elements with vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kernelmill.core.dim import Dim, floordiv
from kernelmill.kernel.ir import Operand, Value
from kernelmill.lower.templates.attention.context import AttentionContext, Tile


class RowElements(Protocol):
    """Gives elements k, k + 1, ... of each row of the tile, so many lanes of them."""

    def __call__(self, k: Dim, *, lanes: int = 1) -> Sequence[Value]: ...


Vectors = Callable[[Dim], Sequence[Value]]
"""The vectors of the tile at k."""


def multiply_tile(
    context: AttentionContext,
    stop: Dim,
    left: RowElements,
    right: Vectors,
    initial: Sequence[Sequence[Operand]],
) -> list[list[Value]]:
    """Return initial[i][j] + the sum over k < stop of left(k)[i] * right(k)[j]."""
    width = len(initial[0])
    values: Sequence[Operand] = [value for row in initial for value in row]
    sums, start = _add_by_lanes(context, stop, left, right, values)
    if start != stop or not sums:
        sums = _add_one_by_one(context, start, stop, left, right, sums or values)
    return [list(sums[i : i + width]) for i in range(0, len(sums), width)]


def _add_by_lanes(
    context: AttentionContext, stop: Dim, left: RowElements, right: Vectors,
    initial: Sequence[Operand],
) -> tuple[Sequence[Value], Dim]:  # fmt: skip
    """The sums of as many k as are whole vectors where a multiply-add takes a lane, and how many
    these are; no sums where there are none."""
    sums: Sequence[Value] = ()
    start: Dim = 0
    for vectors in _LANE_PASSES if context.schedule.by_lane else ():
        step = vectors * context.schedule.lanes
        end = start + floordiv(stop - start, step) * step
        if end != start:
            part = start, end
            sums = _add_by_lane(context, part, vectors, left, right, sums or initial)
            start = end
    return sums, start


def _add_one_by_one(
    context: AttentionContext,
    start: Dim,
    stop: Dim,
    left: RowElements,
    right: Vectors,
    initial: Sequence[Operand],
) -> Sequence[Value]:
    carry = [(context.vector, value) for value in initial]
    with context.builder.loop(start, stop, carry=carry, prefix="k") as loop:
        vectors = right(loop.index)
        loop.carry(*_added(context, left(loop.index), vectors, loop.carried))
    return loop.results


def _add_by_lane(
    context: AttentionContext, k: tuple[Dim, Dim], vectors: int, left: RowElements, right: Vectors,
    initial: Sequence[Operand],
) -> Sequence[Value]:  # fmt: skip
    """The same, where a multiply-add takes one lane of a vector: rows are read in vectors along k,
    so many in a pass."""
    builder, lanes = context.builder, context.schedule.lanes
    carry = [(context.vector, value) for value in initial]
    with builder.loop(*k, vectors * lanes, carry, prefix="k") as loop:
        sums: Sequence[Value] = loop.carried
        for at in (loop.index + part * lanes for part in range(vectors)):
            rows = left(at, lanes=lanes)
            for lane in range(lanes):
                factors = [builder.op("extract", row, lane) for row in rows]
                sums = _added(context, factors, right(at + lane), sums)
        loop.carry(*sums)
    return loop.results


def _added(
    context: AttentionContext,
    factors: Sequence[Value],
    vectors: Sequence[Value],
    sums: Sequence[Value],
) -> list[Value]:
    """Return the sums, row-major, with the product of each row's factor and each vector."""
    width = len(vectors)
    return [
        context.multiply_add(factors[place // width], vectors[place % width], total)
        for place, total in enumerate(sums)
    ]


_LANE_PASSES = (4, 1)
"""Vectors along k that a pass of a loop takes where a multiply-add takes a lane, and one of those
that are left."""


class ValuePanel(Protocol):
    """Gives vectors first..first+width-1 of the value of the block's key number k."""

    def __call__(self, k: Dim, *, first: int, width: int) -> Sequence[Value]: ...


def add_weighted_values(
    context: AttentionContext, tile: Tile, count: Dim, values: ValuePanel
) -> None:
    """Add the weighted values of the block's first `count` keys to sums[row] * factor."""
    scratch, lanes = context.scratch, context.schedule.lanes

    def weights(k: Dim, *, lanes: int = 1) -> list[Value]:
        return [context.read(context.score_offset(i, k), lanes) for i in range(tile.count)]

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
    """Return the sums of earlier blocks for one row, scaled to the new peak."""
    if context.schedule.single_block:
        return [0.0] * width
    factor = context.read(context.scratch.factors + tile_row)
    return [context.builder.op("mul", old, factor) for old in context.read_vectors(offset, width)]
