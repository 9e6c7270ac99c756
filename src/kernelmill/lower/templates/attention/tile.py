"""The register tile: sums of products of rows' elements with vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Operand, Value
from kernelmill.lower.templates.attention.frame import Frame, Tile


def multiply_tile(
    frame: Frame,
    stop: Dim,
    left: Callable[[Dim], Sequence[Value]],
    right: Callable[[Dim], Sequence[Value]],
    initial: Sequence[Sequence[Operand]],
) -> list[list[Value]]:
    """initial[i][j] + the sum over k < stop of left(k)[i] * right(k)[j].

    `left` gives one scalar for each row, `right` the vectors of the tile.
    """
    width = len(initial[0])
    carry = [(frame.vector, value) for row in initial for value in row]
    with frame.builder.loop(0, stop, carry=carry, prefix="k") as loop:
        vectors = right(loop.index)
        sums: list[Value] = []
        for i, factor in enumerate(left(loop.index)):
            carried = loop.carried[i * width : (i + 1) * width]
            for vector, total in zip(vectors, carried, strict=True):
                sums.append(frame.multiply_add(factor, vector, total))
        loop.carry(*sums)
    return [list(loop.results[i : i + width]) for i in range(0, len(carry), width)]


class ValuePanel(Protocol):
    """Gives vectors first..first+width-1 of the value of the block's key number k."""

    def __call__(self, k: Dim, *, first: int, width: int) -> Sequence[Value]: ...


def add_weighted_values(frame: Frame, tile: Tile, count: Dim, values: ValuePanel) -> None:
    """sums[row] = sums[row] * factor + the weighted values of the block's first `count` keys."""
    layout, lanes = frame.layout, frame.schedule.lanes

    def weights(k: Dim) -> list[Value]:
        return [frame.read(frame.score_place(i, k)) for i in range(tile.count)]

    first = 0
    for width in frame.schedule.value_panels:
        places = [
            layout.sums + (tile.first + i) * layout.value_row + first * lanes
            for i in range(tile.count)
        ]
        initial = [_older_sums(frame, i, place, width) for i, place in enumerate(places)]
        panel = partial(values, first=first, width=width)
        sums = multiply_tile(frame, count, weights, panel, initial)
        for place, row in zip(places, sums, strict=True):
            for j, total in enumerate(row):
                frame.write(place + j * lanes, total)
        first += width


def _older_sums(frame: Frame, tile_row: int, place: Dim, width: int) -> Sequence[Operand]:
    """What earlier blocks summed up for one row, relative to the new peak."""
    if frame.schedule.single:
        return [0.0] * width
    factor = frame.read(frame.layout.factors + tile_row)
    return [frame.builder.op("mul", old, factor) for old in frame.read_vectors(place, width)]
