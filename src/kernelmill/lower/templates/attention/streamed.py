"""Few query rows, as in decoding: keys and values are read once, in place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod, provably_less
from kernelmill.kernel.ir import Operand, Value
from kernelmill.lower.templates.attention.frame import Frame, Row, Tile
from kernelmill.lower.templates.attention.softmax import exponentiate
from kernelmill.lower.templates.attention.spec import Dims
from kernelmill.lower.templates.attention.tile import add_weighted_values, multiply_tile


def emit_streamed(frame: Frame, batch: Dims, first: Dim) -> None:
    """The query rows of one task, from `first` on; `batch` is that of its first head."""
    spec, schedule = frame.spec, frame.schedule
    tile = Tile(0, schedule.tile_rows, partial(_row, frame, batch, first))
    rows = [tile.row(i) for i in range(tile.count)]
    for row in rows:
        frame.start_row(row)
    keys = minimum(spec.keys, first + schedule.rows) if spec.causal else spec.keys
    if schedule.single:
        _emit_block(frame, batch, tile, 0, keys)
    else:
        with frame.builder.loop(0, keys, schedule.keys, prefix="n") as loop:
            _emit_block(frame, batch, tile, loop.index, minimum(loop.index + schedule.keys, keys))
    for i, row in enumerate(rows):
        _finish(frame, row, first + i % schedule.rows)


def _finish(frame: Frame, row: Row, m: Dim) -> None:
    """Store a row, unless it stands for one past the end."""
    if provably_less(m, frame.spec.rows):
        frame.finish_row(row)
        return
    b = frame.builder
    with b.when(b.op("lt", b.index(m), b.index(frame.spec.rows))):
        frame.finish_row(row)


def _row(frame: Frame, batch: Dims, first: Dim, i: Dim) -> Row:
    """Row i of the task: heads one after another; one past the end is the last one again."""
    b, total = frame.builder, frame.spec.rows
    head, m = floordiv(i, frame.schedule.rows), first + mod(i, frame.schedule.rows)
    if not isinstance(total, int):
        m = b.let(b.index(minimum(m, total - 1)), 0, total - 1)
    return Row((*batch[:-1], batch[-1] + head), m, i)


def _emit_block(frame: Frame, batch: Dims, tile: Tile, start: Dim, end: Dim) -> None:
    spec, lanes = frame.spec, frame.schedule.lanes
    if spec.key_contiguous_along == "d":
        _scores_along_depth(frame, batch, tile, start, end)
    else:
        _scores_along_keys(frame, batch, tile, start, end)
    exponentiate(frame, tile, start, end - start, ceildiv(end - start, lanes))

    def values(k: Dim, *, first: int, width: int) -> list[Value]:
        return [_value(frame, batch, start + k, (first + j) * lanes) for j in range(width)]

    add_weighted_values(frame, tile, end - start, values)


def _value(frame: Frame, batch: Dims, n: Dim, e: int) -> Value:
    """A vector of one value, with zeros past its end."""
    spec, lanes = frame.spec, frame.schedule.lanes
    assert isinstance(spec.value_depth, int)
    whole = e + lanes <= spec.value_depth
    lane = frame.lane(lanes, None if whole else frame.lanes_below(spec.value_depth - e))
    return frame.widen(spec.value(frame.builder, batch, n, lane.index + e, lane), lanes)


def _scores_along_depth(frame: Frame, batch: Dims, tile: Tile, start: Dim, end: Dim) -> None:
    """Each score by itself: vectors along the depth, added up across lanes at the end."""
    spec, layout, pieces = frame.spec, frame.layout, frame.pieces(frame.spec.depth)
    queries = [
        [frame.read(layout.queries + i * layout.query_row + d, n) for d, n in pieces]
        for i in range(tile.count)
    ]
    with frame.builder.loop(start, end, prefix="n") as loop:
        key = [frame.piece(spec.key, batch, loop.index, d, n) for d, n in pieces]
        for i, query in enumerate(queries):
            frame.write(frame.score_place(i, loop.index - start), _dot(frame, query, key))


def _dot(frame: Frame, left: Sequence[Value], right: Sequence[Value]) -> Value:
    """The sum of products of two rows in pieces: one running sum for each width of piece."""
    b = frame.builder
    running: dict[int, Value] = {}
    for x, y in zip(left, right, strict=True):
        lanes = x.type.lanes
        total = running.get(lanes)
        running[lanes] = b.op("mul", x, y) if total is None else frame.multiply_add(x, y, total)
    parts = [b.op("reduce_add", v) if lanes > 1 else v for lanes, v in running.items()]
    result = parts[0]
    for part in parts[1:]:
        result = b.op("add", result, part)
    return result


def _scores_along_keys(frame: Frame, batch: Dims, tile: Tile, start: Dim, end: Dim) -> None:
    """A vector of scores at a time: keys lie side by side in memory."""
    b, spec, lanes = frame.builder, frame.spec, frame.schedule.lanes
    queries = partial(frame.query_elements, tile)
    with b.loop(start, end, lanes, prefix="n") as loop:
        mask = None if frame.whole_blocks else frame.lanes_below(end - loop.index)

        def keys(d: Dim) -> list[Value]:
            lane = frame.lane(lanes, mask)
            n = lane.index + loop.index
            return [frame.widen(spec.key(b, batch, n, d, lane), lanes)]

        zeros: list[list[Operand]] = [[0.0]] * tile.count
        for i, (score,) in enumerate(multiply_tile(frame, spec.depth, queries, keys, zeros)):
            frame.write(frame.score_place(i, loop.index - start), score)
