"""Emits a task of a blocked contraction: its panels, its register tiles and their epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.emit.context import choose_count
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.microkernel import BlockTile, Fetch, Tile
from kernelmill.lower.emit.packed import unsigned_halves
from kernelmill.lower.templates.matmul.blocked_tiles import (
    FromRegisters,
    InDepthBlocks,
    ThroughScratch,
)
from kernelmill.lower.templates.matmul.context import BlockedContext
from kernelmill.lower.templates.matmul.operands import PanelsOfB, RowsOfA, panels_of_b, rows_of_a
from kernelmill.lower.weights.dot_operand import ZERO_POINTS

_UNROLLED, _UNROLLED_NARROW = 8, 16
"""Numbers of k in each pass of the loop if most instructions are multiply-adds. The second is for
vectors with two rows or columns of an operand, which need more instructions."""


@dataclass(frozen=True)
class _Task:
    """The operands and callbacks that tiles of a task are summed with.

    initial  what the sums of a row tile begin with, by their places in the tile
    keep     what is done with them, by the row tile and the column tile
    finish   what follows, once for tiles of any number of rows and vectors
    """

    context: BlockedContext
    a: RowsOfA
    b: PanelsOfB
    initial: Callable[[Dim, Sequence[int]], list[Value]]
    keep: Callable[[Dim, Dim, Sequence[tuple[int, Value]]], None]
    finish: Callable[[Dim, Dim], None] = lambda row, column: None


def emit_blocked(context: BlockedContext) -> None:
    """Emit all of a task's tiles."""
    match context.schedule.sums:
        case FromRegisters():
            _from_registers(context)
        case ThroughScratch():
            _through_scratch(context)
        case InDepthBlocks(size):
            _in_depth_blocks(context, size)


def _from_registers(context: BlockedContext) -> None:
    if context.spec.dot_i8:
        raise ValueError("the schedule does not fit the contraction: scratch shifts its sums")

    def initial(_: Dim, places: Sequence[int]) -> list[Value]:
        return [context.zeros()] * len(places)

    def keep(row: Dim, column: Dim, sums: Sequence[tuple[int, Value]]) -> None:
        for place, value in sums:
            start, lane = column * context.schedule.width + place, context.columns(column, place)
            context.store(row, start, lane, value)

    task = _Task(context, rows_of_a(context), panels_of_b(context), initial, keep)
    _for_whole_depth(task)


def _through_scratch(context: BlockedContext) -> None:
    start = context.scratch.sums

    def initial(_: Dim, places: Sequence[int]) -> list[Value]:
        # From memory, so that LLVM does not set these registers before it is known that this tile
        # is the one, at the cost of another tile's registers.
        return [context.read(0, context.schedule.lanes)] * len(places)

    def keep(_: Dim, __: Dim, sums: Sequence[tuple[int, Value]]) -> None:
        for place, value in sums:
            context.write(start + place, value)

    def finish(row: Dim, column: Dim) -> None:
        _store_tile(context, row, column, start)

    context.write(0, context.zeros())
    task = _Task(context, rows_of_a(context), panels_of_b(context), initial, keep, finish)
    _for_whole_depth(task)


def _for_whole_depth(task: _Task) -> None:
    context = task.context
    with context.column_tiles() as column:
        _clear_shift(context)
        _sum_row_tiles(task, Depth.whole(context.spec.k), column)


def _in_depth_blocks(context: BlockedContext, size: int) -> None:
    spec, schedule = context.spec, context.schedule
    tile = schedule.rows * schedule.width

    def start(row: Dim) -> Dim:
        return context.scratch.sums + (row - context.first_row_tile) * tile

    def initial(row: Dim, places: Sequence[int]) -> list[Value]:
        return [context.read(start(row) + place, schedule.lanes) for place in places]

    def keep(row: Dim, _: Dim, sums: Sequence[tuple[int, Value]]) -> None:
        for place, value in sums:
            context.write(start(row) + place, value)

    context.write(0, context.zeros())
    task = _Task(context, rows_of_a(context), panels_of_b(context), initial, keep)
    with context.column_tiles() as column:
        _clear_shift(context)
        _clear(context, context.scratch.sums, schedule.row_tiles * tile)
        with context.builder.loop(0, spec.k[0], size, prefix="block") as block:
            stop = minimum(spec.k[0], block.index + size)
            _sum_row_tiles(task, Depth(spec.k, block.index, stop), column)
        with context.row_tiles() as row:
            _store_tile(context, row, column, start(row))


def _sum_row_tiles(task: _Task, depth: Depth, column: Dim) -> None:
    task.b.fill(depth, column)
    _add_shift(task, depth, column)
    with task.context.row_tiles() as row:
        _sum_tile(task, depth, row, column)
        task.finish(row, column)


# ---- sums -----------------------------------------------------------------------------------


def _sum_tile(task: _Task, depth: Depth, row: Dim, column: Dim) -> None:
    """Sum one tile, with as many rows and vectors as there are at the edges. Of a symbolic number
    of rows the last tile may have any: few cost what few must."""
    spec, schedule, builder = task.context.spec, task.context.schedule, task.context.builder

    def with_vectors(vectors: int) -> None:
        rows = partial(_register_tile, task, depth, row, column, vectors)
        choose_count(builder, spec.m, row, schedule.rows, rows)

    known = isinstance(spec.n, int)
    count = ceildiv(spec.n, schedule.lanes) if known else schedule.vectors
    choose_count(builder, count, column, schedule.vectors, with_vectors)


def _register_tile(
    task: _Task, depth: Depth, row: Dim, column: Dim, vectors: int, rows: int
) -> None:
    context, schedule = task.context, task.context.schedule
    shape = BlockTile if context.spec.unit.on_blocks else Tile
    narrow = shape is BlockTile or schedule.lanes == 2
    unrolled = _UNROLLED_NARROW if narrow else _UNROLLED
    tile = shape(
        rows,
        vectors,
        schedule.lanes,
        context.dtype,
        schedule.use_fma,
        schedule.unit(context.spec),
        context.spec.b.panelled,
        unrolled if schedule.by_lane or shape is BlockTile else 1,
    )
    if task.a.flat and task.b.flat:
        depth = depth.collapsed()
    a = task.a.elements(depth, row)
    b = task.b.ahead(task.b.vectors(depth, column, vectors), depth, row, column)
    if schedule.by_lane and depth.inner == 1:
        a, b, depth = _along_first(a, depth), _along_first(b, depth), depth.first
    places = [i * schedule.width + v * schedule.lanes for i in range(rows) for v in range(vectors)]
    initial = task.initial(row, places)
    factors = task.b.factors(column, vectors)
    sums = tile.sum_products(context.builder, depth, a, b, initial, factors)
    if task.a.odd is not None and task.b.odd is not None:
        a, b = task.a.odd(depth, row), task.b.odd(depth, column, vectors)
        sums = tile.sum_products(context.builder, depth, a, b, sums)
    task.keep(row, column, list(zip(places, sums, strict=True)))


def _along_first(fetch: Fetch, depth: Depth) -> Fetch:
    """Return the reader by the first axis of k alone, where the others have one element."""
    others = (0,) * (len(depth.axes) - 1)
    return lambda i, k: fetch(i, (*k, *others))


def _clear_shift(context: BlockedContext) -> None:
    if context.spec.dot_i8:
        _clear(context, context.scratch.shift, context.schedule.width)


def _clear(context: BlockedContext, start: int, size: int) -> None:
    lanes, zeros = context.schedule.lanes, context.zeros()
    with context.builder.loop(0, size // lanes, prefix="v") as loop:
        context.write(start + loop.index * lanes, zeros)


def _add_shift(task: _Task, depth: Depth, column: Dim) -> None:
    """Compute for dot_i8 128 times the sums of the tile's columns, which A's bytes add."""
    context = task.context
    if not context.spec.dot_i8:
        return
    schedule, shift = context.schedule, context.scratch.shift
    tile = Tile(
        1, schedule.vectors, schedule.lanes, context.dtype, schedule.use_fma,
        schedule.unit(context.spec),
    )  # fmt: skip
    places = [shift + v * schedule.lanes for v in range(schedule.vectors)]
    sums = [context.read(place, schedule.lanes) for place in places]
    zeros = context.builder.op("splat", ZERO_POINTS, dtype=context.dtype)
    if context.halves is not None:
        zeros, _ = unsigned_halves(context.builder, zeros)
    for read in (task.b.vectors, task.b.odd):
        if read is not None:
            b = read(depth, column, schedule.vectors)
            sums = tile.sum_products(context.builder, depth, lambda i, k: zeros, b, sums)
    for place, value in zip(places, sums, strict=True):
        context.write(place, value)


def _store_tile(context: BlockedContext, row: Dim, column: Dim, start: Dim) -> None:
    shift = context.scratch.shift if context.spec.dot_i8 else None
    context.store_tile(row, column, start, shift)
