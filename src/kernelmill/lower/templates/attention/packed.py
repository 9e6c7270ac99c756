"""Many query rows: blocks of keys and values are packed, and all rows of the task work on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kernelmill.core.dim import Dim, ceildiv, floordiv, maximum, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.emit.transpose import transpose
from kernelmill.lower.templates.attention.frame import Frame, Row, Tile
from kernelmill.lower.templates.attention.softmax import exponentiate
from kernelmill.lower.templates.attention.spec import Dims
from kernelmill.lower.templates.attention.tile import add_weighted_values, multiply_tile

_SQUARE = 4
"""Side of the squares in which keys are turned round: larger ones take LLVM long to compile."""


def emit_packed(frame: Frame, batch: Dims, first: Dim) -> None:
    """The query rows of one task, from `first` on."""
    b, spec, block = frame.builder, frame.spec, frame.schedule.keys
    stop = minimum(first + frame.schedule.rows, spec.rows)
    with b.loop(first, stop, prefix="m") as loop:
        frame.start_row(Row(batch, loop.index, loop.index - first))
    keys = minimum(spec.keys, stop) if spec.causal else spec.keys
    if frame.schedule.single:
        _emit_block(frame, batch, first, stop, 0, keys)
    else:
        with b.loop(0, keys, block, prefix="n") as loop:
            end = minimum(loop.index + block, keys)
            _emit_block(frame, batch, first, stop, loop.index, end)
    with b.loop(first, stop, prefix="m") as loop:
        frame.finish_row(Row(batch, loop.index, loop.index - first))


def _emit_block(frame: Frame, batch: Dims, first: Dim, stop: Dim, start: Dim, end: Dim) -> None:
    """All rows of the task against keys start..end-1."""
    _pack_keys(frame, batch, start, end)
    _pack_values(frame, batch, start, end)
    tile_rows = frame.schedule.tile_rows
    # Rows before the block's first key do not see it.
    skipped = maximum(0, floordiv(start - first, tile_rows) * tile_rows) if frame.spec.causal else 0
    with frame.builder.loop(skipped, stop - first, tile_rows, prefix="r") as loop:
        tile = Tile(loop.index, tile_rows, partial(_row, frame, batch, first, loop.index))
        seen = minimum(end, first + loop.index + tile_rows) if frame.spec.causal else end
        _emit_tile(frame, tile, start, seen - start)


def _row(frame: Frame, batch: Dims, first: Dim, number: Dim, i: Dim) -> Row:
    """Row i of the tile that starts at `number`; one past the end repeats the last one's mask."""
    b, total = frame.builder, frame.spec.rows
    whole = isinstance(total, int) and total % frame.schedule.tile_rows == 0
    m = first + number + i
    if frame.spec.mask is not None and not whole:
        m = b.let(b.index(minimum(m, total - 1)), 0, total - 1)
    return Row(batch, m, number + i)


def _emit_tile(frame: Frame, tile: Tile, start: Dim, count: Dim) -> None:
    """A register tile's rows against `count` keys of the packed block that starts at `start`."""
    panel, layout = frame.schedule.panel, frame.layout
    panels = ceildiv(count, layout.width)
    queries = partial(frame.query_elements, tile)
    with frame.builder.loop(0, panels, prefix="p") as loop:
        base = layout.keys + loop.index * frame.spec.depth * layout.width

        def keys(d: Dim) -> Sequence[Value]:
            return frame.read_vectors(base + d * layout.width, panel)

        zeros = [[0.0] * panel] * tile.count
        scores = multiply_tile(frame, frame.spec.depth, queries, keys, zeros)
        for i, row in enumerate(scores):
            for j, score in enumerate(row):
                column = loop.index * layout.width + j * frame.schedule.lanes
                frame.write(frame.score_place(i, column), score)
    exponentiate(frame, tile, start, count, panels * panel)

    def values(k: Dim, *, first: int, width: int) -> Sequence[Value]:
        place = layout.values + k * layout.value_row + first * frame.schedule.lanes
        return frame.read_vectors(place, width)

    add_weighted_values(frame, tile, count, values)


def _pack_keys(frame: Frame, batch: Dims, start: Dim, end: Dim) -> None:
    """Keys start..end-1 turned round into panels, each with `width` keys side by side."""
    b, spec, width = frame.builder, frame.spec, frame.layout.width
    with b.loop(0, ceildiv(end - start, width), prefix="p") as loop:
        base = frame.layout.keys + loop.index * spec.depth * width
        left = start + loop.index * width
        right = minimum(left + width, end)
        if spec.key_contiguous_along == "d":
            _turn_keys(frame, batch, base, left, right)
        else:
            _copy_keys(frame, batch, base, left, right)


def _turn_keys(frame: Frame, batch: Dims, base: Dim, left: Dim, right: Dim) -> None:
    """Keys contiguous along the depth: in small squares, and by the element at the edges."""
    b, spec, width = frame.builder, frame.spec, frame.layout.width
    assert isinstance(spec.depth, int)
    side = min(frame.schedule.lanes, _SQUARE)
    depth, whole = spec.depth // side * side, left + (right - left) // side * side
    with b.loop(left, whole, side, prefix="n") as keys, b.loop(0, depth, side) as loop:
        n, d = keys.index, loop.index
        square = [frame.piece(spec.key, batch, n + i, d, side) for i in range(side)]
        for i, vector in enumerate(transpose(b, square)):
            frame.write(base + (d + i) * width + n - left, vector)
    for first, stop, from_depth in ((left, whole, depth), (whole, right, 0)):
        if from_depth == spec.depth:
            continue
        with b.loop(first, stop, prefix="n") as keys, b.loop(from_depth, spec.depth) as loop:
            key = spec.key(b, batch, keys.index, loop.index, None)
            frame.write(base + loop.index * width + keys.index - left, key)


def _copy_keys(frame: Frame, batch: Dims, base: Dim, left: Dim, right: Dim) -> None:
    b, spec, lanes = frame.builder, frame.spec, frame.schedule.lanes
    with b.loop(0, spec.depth, prefix="d") as loop:
        for j in range(frame.schedule.panel):
            n = left + j * lanes
            lane = frame.lane(lanes, None if frame.whole_blocks else frame.lanes_below(right - n))
            key = frame.widen(spec.key(b, batch, lane.index + n, loop.index, lane), lanes)
            frame.write(base + loop.index * frame.layout.width + j * lanes, key)


def _pack_values(frame: Frame, batch: Dims, start: Dim, end: Dim) -> None:
    spec, layout = frame.spec, frame.layout
    with frame.builder.loop(start, end, prefix="n") as loop:
        for first, lanes in frame.pieces(spec.value_depth):
            value = frame.piece(spec.value, batch, loop.index, first, lanes)
            place = layout.values + (loop.index - start) * layout.value_row + first
            frame.write(place, value)
