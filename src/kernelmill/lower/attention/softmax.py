"""Scores of a register tile's rows to exponentials, with what earlier blocks left behind.

For each row, `peaks` holds the largest score so far and `totals` the sum of exp(score - peak). A
later block with a larger score scales what was summed before by exp(old peak - new peak): the
"online softmax" of Milakov and Gimelshein (2018). While all scores are -inf the peak counts as 0,
so that their exponentials are 0 and not NaN. A NaN never becomes a peak, but its exponential makes
the total NaN, and so the whole row.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Value
from kernelmill.lower.attention.frame import Frame, Row

_LOWEST = float("-inf")


def exponentiate(
    frame: Frame, rows: Sequence[Row], start: Dim, count: Dim, vectors: Dim
) -> list[Value | None]:
    """Replace the tile's scores by exponentials, and bring peaks and totals up to date.

    The scores are those of keys start, start + 1..., `count` of which exist; `vectors` vectors of
    them are in scratch. Gives the factor for each row's older sums, None where there are none.
    """
    scale: list[Value | None] = []
    shifts: list[Value] = []
    for row, peak in zip(rows, _peaks(frame, rows, start, count, vectors), strict=True):
        shift, factor = _raise_peak(frame, row, peak)
        shifts.append(shift)
        scale.append(factor)
    totals = _totals(frame, shifts, vectors)
    for row, total, factor in zip(rows, totals, scale, strict=True):
        place = frame.layout.totals + row.number
        if factor is not None:
            total = frame.multiply_add(frame.read(place), factor, total)
        frame.write(place, total)
    return scale


def _peaks(frame: Frame, rows: Sequence[Row], start: Dim, count: Dim, vectors: Dim) -> list[Value]:
    """Mask the scores, and find the largest of each row."""
    b, lanes = frame.builder, frame.schedule.lanes
    carry = [(frame.vector, _LOWEST)] * len(rows)
    with b.loop(0, vectors, carry=carry, prefix="v") as loop:
        first = loop.index * lanes
        exists = None if frame.whole_blocks else frame.lanes_below(count - first)
        peaks: list[Value] = []
        for i, (row, peak) in enumerate(zip(rows, loop.carried, strict=True)):
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


def _raise_peak(frame: Frame, row: Row, peak: Value) -> tuple[Value, Value | None]:
    """What to subtract from the row's scores, and the factor for what was summed before."""
    b, place = frame.builder, frame.layout.peaks + row.number
    old = None if frame.schedule.single else frame.read(place)
    if old is not None:
        peak = frame.larger(old, peak)
        frame.write(place, peak)
    shift = b.op("select", b.op("eq", peak, _LOWEST), 0.0, peak)
    factor = None if old is None else b.op("exp", b.op("sub", old, shift))
    return shift, factor


def _totals(frame: Frame, shifts: Sequence[Value], vectors: Dim) -> list[Value]:
    """Exponentials in place of the scores, and their sum for each row."""
    b, lanes = frame.builder, frame.schedule.lanes
    carry = [(frame.vector, 0.0)] * len(shifts)
    with b.loop(0, vectors, carry=carry, prefix="v") as loop:
        totals: list[Value] = []
        for i, (shift, total) in enumerate(zip(shifts, loop.carried, strict=True)):
            place = frame.score_place(i, loop.index * lanes)
            power = b.op("exp", b.op("sub", frame.read(place, lanes), shift))
            frame.write(place, power)
            totals.append(b.op("add", total, power))
        loop.carry(*totals)
    return [b.op("reduce_add", total) for total in loop.results]
