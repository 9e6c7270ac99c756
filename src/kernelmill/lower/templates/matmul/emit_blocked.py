"""Emits a task of a blocked contraction: its panels, its register tiles, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dim import Dim, minimum, mod
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.microkernel import Tile
from kernelmill.lower.templates.matmul.context import BlockedContext
from kernelmill.lower.templates.matmul.operands import (
    copy_a,
    copy_b,
    factors_of_b,
    is_flat,
    prefetching_a,
    prefetching_b,
    rows_of_a,
    vectors_of_b,
)
from kernelmill.lower.templates.matmul.spec import FillPanel
from kernelmill.lower.templates.matmul.store import store_tile, store_vector
from kernelmill.lower.weights.dot_operand import ZERO_POINTS


def emit_blocked(context: BlockedContext) -> None:
    """All of a task's tiles."""
    spec, schedule = context.spec, context.schedule
    if not schedule.store_from_registers:
        context.write(0, context.zeros())
    if schedule.pack_a:
        copy_a(context)
    fill = None
    if context.spec.b.source is not None and not schedule.depth_block:
        begin = context.column_block * (schedule.column_tiles * schedule.width)
        end = minimum(spec.n, begin + schedule.column_tiles * schedule.width)
        fill = _prepare(context, Depth.whole(spec.k), begin, end)
    with context.column_tiles() as tile:
        _column_tile(context, tile, fill)


def _prepare(context: BlockedContext, depth: Depth, begin: Dim, end: Dim) -> FillPanel:
    """What fills panels of columns [begin, end)."""
    kept = context.schedule.kept(context.spec)
    assert kept is not None
    return kept.prepare(context, context.batch, context.scratch.source, depth, begin, end)


def _column_tile(context: BlockedContext, column: Dim, fill: FillPanel | None) -> None:
    """All of the task's tiles with these columns."""
    spec, block = context.spec, context.schedule.depth_block
    depth = Depth.whole(spec.k)
    if spec.dot_i8:
        _clear(context, context.scratch.shift, context.schedule.width)
    if not block:
        _pack_b(context, depth, column, fill)
        _add_shift(context, depth, column)
        with context.row_tiles() as row:
            _sum_tile(context, depth, row, column)
            if not context.schedule.store_from_registers:
                _store_tile(context, row, column)
        return
    _clear_sums(context)
    with context.builder.loop(0, spec.k[0], block, prefix="block") as start:
        part = Depth(spec.k, start.index, minimum(spec.k[0], start.index + block))
        _pack_b(context, part, column, None)
        _add_shift(context, part, column)
        with context.row_tiles() as row:
            _sum_tile(context, part, row, column)
    with context.row_tiles() as row:
        _store_tile(context, row, column)


def _pack_b(context: BlockedContext, depth: Depth, column: Dim, fill: FillPanel | None) -> None:
    """Fill the panel of B in scratch, if it has one; by what was prepared for the task, or anew."""
    schedule = context.schedule
    if context.spec.b.source is not None:
        begin = column * schedule.width
        end = minimum(context.spec.n, begin + schedule.width)
        fill = fill or _prepare(context, depth, begin, end)
        stride = schedule.panel_stride(context.spec)
        fill(begin, end, context.scratch.b - depth.start * depth.inner * stride, stride)
    elif schedule.pack_b:
        copy_b(context, depth, column)


# ---- sums -----------------------------------------------------------------------------------

Choice = tuple[Dim | None, Callable[[], None]]
"""What is emitted where the dim is positive; None: in all other cases."""


def _choose(builder: KernelBuilder, choices: Sequence[Choice]) -> None:
    (positive, emit), *others = choices
    if positive is None:
        emit()
        return
    with builder.when(builder.op("gt", builder.index(positive), 0)) as branch:
        emit()
    with builder.otherwise(branch):
        _choose(builder, others)


def _sum_tile(context: BlockedContext, depth: Depth, row: Dim, column: Dim) -> None:
    """Sum one tile, with as many rows and vectors as there are at the edges."""

    def with_vectors(vectors: int) -> Callable[[], None]:
        return lambda: _choose(context.builder, _row_choices(context, depth, row, column, vectors))

    spec, schedule = context.spec, context.schedule
    if isinstance(spec.n, int) and spec.n % schedule.width:
        full, rest = divmod(spec.n, schedule.width)
        last = part_count(rest, schedule.lanes)
        if last < schedule.vectors:
            narrow = with_vectors(last)
            choices = [(full - column, with_vectors(schedule.vectors)), (None, narrow)]
            _choose(context.builder, choices if full else choices[1:])
            return
    with_vectors(schedule.vectors)()


def _row_choices(
    context: BlockedContext, depth: Depth, row: Dim, column: Dim, vectors: int
) -> Sequence[Choice]:
    m, rows = context.spec.m, context.schedule.rows

    def with_rows(count: int) -> Callable[[], None]:
        return lambda: _register_tile(context, depth, row, column, count, vectors)

    if mod(m, rows) == 0:
        return [(None, with_rows(rows))]
    if isinstance(m, int):
        full, rest = divmod(m, rows)
        edge = (None, with_rows(rest))
        return [(full - row, with_rows(rows)), edge] if full else [edge]
    # Of a symbolic size the last tile may have any number of rows: few cost what few must.
    left = m - row * rows
    several = [(left - less, with_rows(less + 1)) for less in range(rows - 1, 0, -1)]
    return [*several, (None, with_rows(1))]


def _register_tile(
    context: BlockedContext, depth: Depth, row: Dim, column: Dim, rows: int, vectors: int
) -> None:
    builder, schedule = context.builder, context.schedule
    tile = Tile(
        rows,
        vectors,
        schedule.lanes,
        context.dtype,
        schedule.use_fma,
        context.spec.unit,
        context.spec.b.panelled,
    )
    if is_flat(context):
        depth = depth.collapsed()
    a = rows_of_a(context, depth, row)
    b = vectors_of_b(context, depth, column, vectors)
    if schedule.prefetch_b:
        b = prefetching_b(context, b, depth, row, column)
    if schedule.prefetch_a:
        a = prefetching_a(context, a, row)
    places = [
        _sums(context, row) + i * schedule.width + v * schedule.lanes
        for i in range(rows)
        for v in range(vectors)
    ]
    if schedule.store_from_registers:
        initial = [context.zeros()] * len(places)
    elif schedule.depth_block:
        initial = [context.read(place, schedule.lanes) for place in places]
    else:
        # From memory, so that LLVM does not set these registers before it is known that this tile
        # is the one, at the cost of another tile's registers.
        initial = [context.read(0, schedule.lanes)] * len(places)
    factors = factors_of_b(context, column, vectors)
    sums = tile.sum_products(builder, depth, a, b, initial, factors)
    if schedule.store_from_registers:
        for v, value in enumerate(sums):
            store_vector(context, row, column * schedule.width + v * schedule.lanes, value)
        return
    for place, value in zip(places, sums, strict=True):
        context.write(place, value)


def _sums(context: BlockedContext, row: Dim) -> Dim:
    """Where scratch holds the sums of a tile."""
    schedule = context.schedule
    slot = row - context.first_row_tile if schedule.depth_block else 0
    return context.scratch.sums + slot * (schedule.rows * schedule.width)


def _clear_sums(context: BlockedContext) -> None:
    schedule = context.schedule
    _clear(context, context.scratch.sums, schedule.row_tiles * schedule.rows * schedule.width)


def _clear(context: BlockedContext, start: int, size: int) -> None:
    lanes, zeros = context.schedule.lanes, context.zeros()
    with context.builder.loop(0, size // lanes, prefix="v") as loop:
        context.write(start + loop.index * lanes, zeros)


def _add_shift(context: BlockedContext, depth: Depth, column: Dim) -> None:
    """For dot_i8: 128 times the sums of the tile's columns, which A's bytes add to every row."""
    if not context.spec.dot_i8:
        return
    schedule, shift = context.schedule, context.scratch.shift
    tile = Tile(
        1, schedule.vectors, schedule.lanes, context.dtype, schedule.use_fma, context.spec.unit
    )
    b = vectors_of_b(context, depth, column, schedule.vectors)
    places = [shift + v * schedule.lanes for v in range(schedule.vectors)]
    known = [context.read(place, schedule.lanes) for place in places]
    zero_points = context.builder.op("splat", ZERO_POINTS, dtype=context.dtype)
    sums = tile.sum_products(context.builder, depth, lambda i, k: zero_points, b, known)
    for place, value in zip(places, sums, strict=True):
        context.write(place, value)


def _store_tile(context: BlockedContext, row: Dim, column: Dim) -> None:
    shift = context.scratch.shift if context.spec.dot_i8 else None
    store_tile(context, row, column, _sums(context, row), shift)
