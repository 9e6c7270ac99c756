"""Online softmax: from scores of a register tile's rows to exponentials, across blocks of keys.

For each row, `peaks` holds the largest score so far and `totals` the sum of exp(score - peak). A
later block with a larger score scales what was summed before by exp(old peak - new peak): the
"online softmax" of Milakov and Gimelshein (2018). While all scores are -inf the peak counts as 0,
so that their exponentials are 0 and not NaN. A NaN never becomes a peak, but its exponential makes
the total NaN, and so the whole row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from kernelmill.core.dim import Dim, floordiv
from kernelmill.core.dtype import F32
from kernelmill.kernel.ir import Operand, Value
from kernelmill.lower.templates.attention.context import AttentionContext, Row, RowTile
from kernelmill.lower.templates.attention.spec import MaskKind

_LOWEST = float("-inf")
_INTERLEAVED_ROWS = (3, 2, 1)
"""Rows that are worked on side by side, to hide latencies; more would only make the code longer."""


def exponentiate(
    context: AttentionContext, tile: RowTile, start: Dim, count: Dim, vectors: Dim
) -> None:
    """Replace the tile's scores by exponentials, and bring peaks and totals up to date.

    The scores are those of keys start, start + 1..., `count` of which exist; `vectors` vectors of
    them are in scratch. Leaves the factor for each row's older sums there too.
    """
    together = next(n for n in _INTERLEAVED_ROWS if tile.count % n == 0)
    if together == tile.count:
        _exponentiate_rows(context, tile, range(together), start, count, vectors)
        return
    with context.builder.loop(0, tile.count, together, prefix="t") as loop:
        rows = [loop.index + i for i in range(together)]
        _exponentiate_rows(context, tile, rows, start, count, vectors)


def _exponentiate_rows(
    context: AttentionContext, tile: RowTile, numbers: Sequence[Dim],
    start: Dim, count: Dim, vectors: Dim,
) -> None:  # fmt: skip
    rows = [tile.row(i) for i in numbers]
    peaks = _peaks_where_masked(context, rows, numbers, start, count, vectors)
    shifts = [
        _raise_peak(context, row, i, peak)
        for row, i, peak in zip(rows, numbers, peaks, strict=True)
    ]
    totals = _totals(context, numbers, shifts, vectors)
    for row, i, total in zip(rows, numbers, totals, strict=True):
        offset = context.scratch.totals + row.number
        if not context.schedule.single_block:
            factor = context.read(context.scratch.factors + i)
            total = context.multiply_add(context.read(offset), factor, total)
        context.write(offset, total)


def _peaks_where_masked(
    context: AttentionContext, rows: Sequence[Row], numbers: Sequence[Dim],
    start: Dim, count: Dim, vectors: Dim,
) -> list[Value]:  # fmt: skip
    """`_peaks`, where the mask holds for some blocks of keys alone with code for the others too."""
    b, spec = context.builder, context.spec
    peaks = partial(_peaks, rows=rows, numbers=numbers, start=start, count=count, vectors=vectors)
    if context.masking is None or spec.mask is None:
        return peaks(context)
    with b.when(context.masking) as statement:
        masked = peaks(context)
    with b.otherwise(statement):
        others = peaks(replace(context, spec=replace(spec, mask=None)))
    found = [b.fresh_of(peak.type) for peak in masked]
    statement.results = tuple(found)
    statement.then_yields, statement.otherwise_yields = tuple(masked), tuple(others)
    return found


def _peaks(
    context: AttentionContext, rows: Sequence[Row], numbers: Sequence[Dim],
    start: Dim, count: Dim, vectors: Dim,
) -> list[Value]:  # fmt: skip
    """Modify and mask the scores, and find the largest of each row."""
    b, lanes = context.builder, context.schedule.lanes
    carry = [(context.vector, _LOWEST)] * len(rows)
    with b.loop(0, vectors, carry=carry, prefix="v") as loop:
        first = loop.index * lanes
        exists = None if context.whole_blocks else context.lanes_below(count - first)
        peaks: list[Value] = []
        for row, i, peak in zip(rows, numbers, loop.carried, strict=True):
            offset = context.score_offset(i, first)
            score = context.read_scores(offset)
            masked = _masked(context, row, score, start + first, exists)
            if masked is not score or context.scales_scores:
                context.write(offset, masked)
            peaks.append(context.larger(masked, peak))
        loop.carry(*peaks)
    return [b.op("reduce_max", peak) for peak in loop.results]


def _masked(
    context: AttentionContext, row: Row, score: Value, n: Dim, exists: Value | None
) -> Value:
    b, spec = context.builder, context.spec
    if spec.modify is not None:
        lane = context.lane(context.schedule.lanes, exists)
        score = spec.modify(b, row.batch, row.m, lane.index + n, lane, score)
    if spec.mask is not None:
        lane = context.lane(context.schedule.lanes, exists)
        mask = spec.mask(b, row.batch, row.m, lane.index + n, lane)
        if spec.mask_kind is MaskKind.CHOOSE:
            score = b.op("select", mask, score, _LOWEST)
        else:
            score = b.op("add", score, _added(context, mask))
    if spec.causal:
        score = b.op("select", context.lanes_below(row.m + 1 - n), score, _LOWEST)
    if exists is not None:
        score = b.op("select", exists, score, _LOWEST)
    return score


def _added(context: AttentionContext, mask: Value) -> Value:
    """Return the number that is added to scores for a mask, of bools too, as in eager: so a NaN
    stays a NaN under the mask."""
    if context.spec.mask_kind is MaskKind.ADD:
        return mask
    return context.builder.op("select", mask, 0.0, _LOWEST, dtype=context.spec.accumulate)


def _raise_peak(context: AttentionContext, row: Row, tile_row: Dim, peak: Value) -> Value:
    """Return the number to subtract from the row's scores; store the factor of earlier sums."""
    b, offset = context.builder, context.scratch.peaks + row.number
    if context.schedule.single_block:
        if context.spec.normaliser:
            context.write(offset, peak)
        return b.op("select", b.op("eq", peak, _LOWEST), 0.0, peak)
    old = context.read(offset)
    peak = context.larger(old, peak)
    context.write(offset, peak)
    shift = b.op("select", b.op("eq", peak, _LOWEST), 0.0, peak)
    context.write(context.scratch.factors + tile_row, b.op("exp", b.op("sub", old, shift)))
    return shift


def _power(context: AttentionContext, shifted: Value) -> Value:
    """Return e^x for x that is not above 0, where an error is measured by the row's largest: in f32
    the rounding of x log2(e) is of the size of that of the difference which made x."""
    b = context.builder
    if context.spec.accumulate != F32:
        return b.op("exp", shifted)
    return b.op("exp2", b.op("mul", shifted, math.log2(math.e)))


def _totals(
    context: AttentionContext, numbers: Sequence[Dim], shifts: Sequence[Value], vectors: Dim
) -> list[Value]:
    """Store exponentials of scores less shifts; return their sum for each row."""
    b, lanes = context.builder, context.schedule.lanes
    carry = [(context.vector, 0.0)] * len(shifts)
    with b.loop(0, vectors, carry=carry, prefix="v") as loop:
        totals: list[Value] = []
        for i, shift, total in zip(numbers, shifts, loop.carried, strict=True):
            offset = context.score_offset(i, loop.index * lanes)
            power = _power(context, b.op("sub", context.read(offset, lanes), shift))
            context.write_weights(i, loop.index, power)
            totals.append(b.op("add", total, power))
        loop.carry(*totals)
    return [b.op("reduce_add", total) for total in loop.results]


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
        loop.carry(*_with_products(context, left(loop.index), vectors, loop.carried))
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
                sums = _with_products(context, factors, right(at + lane), sums)
        loop.carry(*sums)
    return loop.results


def _with_products(
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
    context: AttentionContext, tile: RowTile, count: Dim, values: ValuePanel
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
