"""Scores of a register tile's rows to exponentials, with what earlier blocks left behind.

For each row, `peaks` holds the largest score so far and `totals` the sum of exp(score - peak). A
later block with a larger score scales what was summed before by exp(old peak - new peak): the
"online softmax" of Milakov and Gimelshein (2018). While all scores are -inf the peak counts as 0,
so that their exponentials are 0 and not NaN. A NaN never becomes a peak, but its exponential makes
the total NaN, and so the whole row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32
from kernelmill.kernel.ir import Value
from kernelmill.lower.templates.attention.frame import Frame, Row, Tile

_LOWEST = float("-inf")
_TOGETHER = (3, 2, 1)
"""Rows that are worked on side by side, to hide latencies; more would only make the code longer."""


def exponentiate(frame: Frame, tile: Tile, start: Dim, count: Dim, vectors: Dim) -> None:
    """Replace the tile's scores by exponentials, and bring peaks and totals up to date.

    The scores are those of keys start, start + 1..., `count` of which exist; `vectors` vectors of
    them are in scratch. Leaves the factor for each row's older sums there too.
    """
    together = next(n for n in _TOGETHER if tile.count % n == 0)
    if together == tile.count:
        _exponentiate_rows(frame, tile, range(together), start, count, vectors)
        return
    with frame.builder.loop(0, tile.count, together, prefix="t") as loop:
        rows = [loop.index + i for i in range(together)]
        _exponentiate_rows(frame, tile, rows, start, count, vectors)


def _exponentiate_rows(
    frame: Frame, tile: Tile, numbers: Sequence[Dim], start: Dim, count: Dim, vectors: Dim
) -> None:
    rows = [tile.row(i) for i in numbers]
    peaks = _peaks(frame, rows, numbers, start, count, vectors)
    shifts = [
        _raise_peak(frame, row, i, peak) for row, i, peak in zip(rows, numbers, peaks, strict=True)
    ]
    totals = _totals(frame, numbers, shifts, vectors)
    for row, i, total in zip(rows, numbers, totals, strict=True):
        place = frame.layout.totals + row.number
        if not frame.schedule.single:
            factor = frame.read(frame.layout.factors + i)
            total = frame.multiply_add(frame.read(place), factor, total)
        frame.write(place, total)


def _peaks(
    frame: Frame, rows: Sequence[Row], numbers: Sequence[Dim], start: Dim, count: Dim, vectors: Dim
) -> list[Value]:
    """Mask the scores, and find the largest of each row."""
    b, lanes = frame.builder, frame.schedule.lanes
    carry = [(frame.vector, _LOWEST)] * len(rows)
    with b.loop(0, vectors, carry=carry, prefix="v") as loop:
        first = loop.index * lanes
        exists = None if frame.whole_blocks else frame.lanes_below(count - first)
        peaks: list[Value] = []
        for row, i, peak in zip(rows, numbers, loop.carried, strict=True):
            place = frame.score_place(i, first)
            score = frame.read(place, lanes)
            masked = _masked(frame, row, score, start + first, exists)
            if masked is not score:
                frame.write(place, masked)
            peaks.append(frame.larger(masked, peak))
        loop.carry(*peaks)
    return [b.op("reduce_max", peak) for peak in loop.results]


def _masked(frame: Frame, row: Row, score: Value, n: Dim, exists: Value | None) -> Value:
    b, spec = frame.builder, frame.spec
    if spec.mask is not None:
        lane = frame.lane(frame.schedule.lanes, exists)
        mask = spec.mask(b, row.batch, row.m, lane.index + n, lane)
        if spec.mask_kind == "keep":
            # Added, as eager does: a NaN stays a NaN under the mask.
            mask = b.op("select", mask, 0.0, _LOWEST, dtype=spec.accumulate)
        score = b.op("add", score, mask)
    if spec.causal:
        score = b.op("select", frame.lanes_below(row.m + 1 - n), score, _LOWEST)
    if exists is not None:
        score = b.op("select", exists, score, _LOWEST)
    return score


def _raise_peak(frame: Frame, row: Row, tile_row: Dim, peak: Value) -> Value:
    """What to subtract from the row's scores; keeps the factor for what was summed before."""
    b, place = frame.builder, frame.layout.peaks + row.number
    if frame.schedule.single:
        return b.op("select", b.op("eq", peak, _LOWEST), 0.0, peak)
    old = frame.read(place)
    peak = frame.larger(old, peak)
    frame.write(place, peak)
    shift = b.op("select", b.op("eq", peak, _LOWEST), 0.0, peak)
    frame.write(frame.layout.factors + tile_row, b.op("exp", b.op("sub", old, shift)))
    return shift


def _power(frame: Frame, shifted: Value) -> Value:
    """e^x for x that is not above 0, where an error is measured by the row's largest: in f32 the
    rounding of x log2(e) is of the size of that of the difference which made x."""
    b = frame.builder
    if frame.spec.accumulate != F32:
        return b.op("exp", shifted)
    return b.op("exp2", b.op("mul", shifted, math.log2(math.e)))


def _totals(
    frame: Frame, numbers: Sequence[Dim], shifts: Sequence[Value], vectors: Dim
) -> list[Value]:
    """Exponentials in place of the scores, and their sum for each row."""
    b, lanes = frame.builder, frame.schedule.lanes
    carry = [(frame.vector, 0.0)] * len(shifts)
    with b.loop(0, vectors, carry=carry, prefix="v") as loop:
        totals: list[Value] = []
        for i, shift, total in zip(numbers, shifts, loop.carried, strict=True):
            place = frame.score_place(i, loop.index * lanes)
            power = _power(frame, b.op("sub", frame.read(place, lanes), shift))
            frame.write(place, power)
            totals.append(b.op("add", total, power))
        loop.carry(*totals)
    return [b.op("reduce_add", total) for total in loop.results]
