"""Emits the kernel of a contraction: tasks, tiles in each task, and the epilogue of each tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod, product
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.microkernel import Tile
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.inner_product import sum_along_depth
from kernelmill.lower.templates.matmul.operands import (
    copy_a,
    copy_b,
    expecting_rows,
    factors_of_b,
    fetching_ahead,
    is_flat,
    rows_of_a,
    vectors_of_b,
)
from kernelmill.lower.templates.matmul.schedule import Schedule
from kernelmill.lower.templates.matmul.spec import Contraction, FillPanel, FindRows, Found
from kernelmill.lower.weights.words import WORD_OF_128


def emit_contraction(builder: KernelBuilder, spec: Contraction, schedule: Schedule) -> None:
    """Write the kernel's body, and set its `tasks` and `scratch`. The builder must be empty but for
    buffers, which the callbacks and packed operands name."""
    tasks = schedule.tasks(spec)
    builder.set_tasks(tasks)
    builder.kernel.scratch = schedule.scratch(spec).bytes
    if tasks != 0:
        emit_task(builder, spec, schedule, builder.task)


def emit_task(builder: KernelBuilder, spec: Contraction, schedule: Schedule, task: Dim) -> None:
    """Append the work of one of the schedule's tasks."""
    rows, columns = schedule.row_blocks(spec), schedule.column_blocks(spec)
    rest = floordiv(task, rows)
    context = ContractionContext(
        builder,
        Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes),
        spec.accumulate,
        spec,
        schedule,
        batch=unravel(floordiv(rest, columns), spec.batch),
        row_block=mod(task, rows),
        column_block=mod(rest, columns),
    )
    if spec.rows is not None:
        _found_rows(context, rest, spec.rows)
    else:
        _task(context)


def _found_rows(context: ContractionContext, rest: Dim, find: FindRows) -> None:
    """A task of a contraction that finds its rows: threads, which have neighbouring tasks, share
    the columns of a batch index and not the batch."""
    builder, size = context.builder, product(context.spec.batch)
    place = builder.let(builder.index(mod(rest, size)), 0, size - 1)
    found = find(builder, unravel(place, context.spec.batch))
    context = replace(
        context,
        spec=replace(context.spec, m=found.rows),
        batch=unravel(place, context.spec.batch),
        column_block=floordiv(rest, size),
    )
    first = builder.index(context.first_row_tile * context.schedule.rows)
    with builder.when(builder.op("gt", builder.index(found.rows), first)):
        _task(context)
    with builder.when(builder.op("eq", builder.index(context.row_block), 0)):
        _sums_of_nothing(context, found)


def _sums_of_nothing(context: ContractionContext, found: Found) -> None:
    """Zeros in the task's columns of the rows behind those that were found."""
    schedule = context.schedule
    with (
        context.builder.loop(found.rows, found.end, prefix="m") as row,
        context.column_tiles() as tile,
    ):
        vectors = ceildiv(context.spec.n, schedule.lanes)
        count = _at_most(schedule.vectors, vectors, tile * schedule.vectors)
        with context.builder.loop(0, count, prefix="v") as v:
            column = tile * schedule.width + v.index * schedule.lanes
            _store(context, row.index, column, context.zeros())


def _task(context: ContractionContext) -> None:
    spec, schedule = context.spec, context.schedule
    if not schedule.inline:
        context.write(0, context.zeros())
    if schedule.pack_a:
        copy_a(context)
    fill = None
    if schedule.run and not schedule.depth_block:
        begin = context.column_block * (schedule.column_tiles * schedule.width)
        end = minimum(spec.n, begin + schedule.column_tiles * schedule.width)
        fill = _prepare(context, Depth.whole(spec.k), begin, end)
    with context.column_tiles() as tile:
        _column_tile(context, tile, fill)


def _prepare(context: ContractionContext, depth: Depth, begin: Dim, end: Dim) -> FillPanel:
    """What fills panels of columns [begin, end)."""
    kept = context.schedule.kept(context.spec)
    assert kept is not None
    return kept.prepare(context, context.batch, context.scratch.source, depth, begin, end)


def _column_tile(context: ContractionContext, column: Dim, fill: FillPanel | None) -> None:
    """All of the task's tiles with these columns."""
    spec, block = context.spec, context.schedule.depth_block
    depth = Depth.whole(spec.k)
    if spec.bytewise:
        _clear(context, context.scratch.shift, context.schedule.width)
    if not block:
        _pack_b(context, depth, column, fill)
        _add_shift(context, depth, column)
        with context.row_tiles() as row:
            _sum_tile(context, depth, row, column)
            if not context.schedule.inline:
                _finish_tile(context, row, column)
        return
    _clear_sums(context)
    with context.builder.loop(0, spec.k[0], block, prefix="block") as start:
        part = Depth(spec.k, start.index, minimum(spec.k[0], start.index + block))
        _pack_b(context, part, column, None)
        _add_shift(context, part, column)
        with context.row_tiles() as row:
            _sum_tile(context, part, row, column)
    with context.row_tiles() as row:
        _finish_tile(context, row, column)


def _pack_b(context: ContractionContext, depth: Depth, column: Dim, fill: FillPanel | None) -> None:
    """Fill the panel of B in scratch, if it has one; by what was prepared for the task, or anew."""
    schedule = context.schedule
    if schedule.run:
        begin = column * schedule.width
        end = minimum(context.spec.n, begin + schedule.width)
        fill = fill or _prepare(context, depth, begin, end)
        stride = schedule.panel_stride
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


def _sum_tile(context: ContractionContext, depth: Depth, row: Dim, column: Dim) -> None:
    """Sum one tile, with as many rows and vectors as there are at the edges."""
    if context.schedule.dot:
        sum_along_depth(context, depth, column)
        return

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
    context: ContractionContext, depth: Depth, row: Dim, column: Dim, vectors: int
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
    context: ContractionContext, depth: Depth, row: Dim, column: Dim, rows: int, vectors: int
) -> None:
    builder, schedule = context.builder, context.schedule
    tile = Tile(
        rows,
        vectors,
        schedule.lanes,
        context.dtype,
        schedule.fused,
        context.spec.unit,
        context.spec.b.panelled,
    )
    if is_flat(context):
        depth = depth.collapsed()
    a = rows_of_a(context, depth, row)
    b = vectors_of_b(context, depth, column, vectors)
    if schedule.ahead:
        b = fetching_ahead(context, b, depth, row, column)
    if schedule.rows_ahead:
        a = expecting_rows(context, a, row)
    places = [
        _sums(context, row) + i * schedule.width + v * schedule.lanes
        for i in range(rows)
        for v in range(vectors)
    ]
    if schedule.inline:
        initial = [context.zeros()] * len(places)
    elif schedule.depth_block:
        initial = [context.read(place, schedule.lanes) for place in places]
    else:
        # From memory, so that LLVM does not set these registers before it is known that this tile
        # is the one, at the cost of another tile's registers.
        initial = [context.read(0, schedule.lanes)] * len(places)
    factors = factors_of_b(context, column, vectors)
    sums = tile.sum_products(builder, depth, a, b, initial, factors)
    if schedule.inline:
        for v, value in enumerate(sums):
            _store(context, row, column * schedule.width + v * schedule.lanes, value)
        return
    for place, value in zip(places, sums, strict=True):
        context.write(place, value)


def _sums(context: ContractionContext, row: Dim) -> Dim:
    """Where scratch holds the sums of a tile."""
    schedule = context.schedule
    slot = row - context.first_row_tile if schedule.depth_block else 0
    return context.scratch.sums + slot * (schedule.rows * schedule.width)


def _clear_sums(context: ContractionContext) -> None:
    schedule = context.schedule
    _clear(context, context.scratch.sums, schedule.row_tiles * schedule.rows * schedule.width)


def _clear(context: ContractionContext, start: int, size: int) -> None:
    lanes, zeros = context.schedule.lanes, context.zeros()
    with context.builder.loop(0, size // lanes, prefix="v") as loop:
        context.write(start + loop.index * lanes, zeros)


def _add_shift(context: ContractionContext, depth: Depth, column: Dim) -> None:
    """With bytes: 128 times the sums of the tile's columns, which A's bytes add to every row."""
    if not context.spec.bytewise:
        return
    schedule, shift = context.schedule, context.scratch.shift
    tile = Tile(
        1, schedule.vectors, schedule.lanes, context.dtype, schedule.fused, context.spec.unit
    )
    b = vectors_of_b(context, depth, column, schedule.vectors)
    places = [shift + v * schedule.lanes for v in range(schedule.vectors)]
    known = [context.read(place, schedule.lanes) for place in places]
    word = context.builder.op("splat", WORD_OF_128, dtype=context.dtype)
    sums = tile.sum_products(context.builder, depth, lambda i, k: word, b, known)
    for place, value in zip(places, sums, strict=True):
        context.write(place, value)


# ---- epilogue -------------------------------------------------------------------------------


def _finish_tile(context: ContractionContext, row: Dim, column: Dim) -> None:
    """Hand the sums of one tile to the caller's epilogue."""
    spec, schedule, builder = context.spec, context.schedule, context.builder
    first = row * schedule.rows
    rows = _at_most(schedule.rows, spec.m, first)
    vectors = _at_most(schedule.vectors, ceildiv(spec.n, schedule.lanes), column * schedule.vectors)
    with (
        builder.loop(0, rows, prefix="m") as i,
        builder.loop(0, vectors, prefix="v") as v,
    ):
        place = _sums(context, row) + i.index * schedule.width + v.index * schedule.lanes
        value = context.read(place, schedule.lanes)
        if spec.bytewise:
            shift = context.read(context.scratch.shift + v.index * schedule.lanes, schedule.lanes)
            value = builder.op("sub", value, shift)
        _store(context, first + i.index, column * schedule.width + v.index * schedule.lanes, value)


def _at_most(count: int, size: Dim, start: Dim) -> Dim:
    """How many of `count` from `start` on are within `size`."""
    return count if mod(size, count) == 0 else minimum(count, size - start)


def _store(context: ContractionContext, row: Dim, column: Dim, value: Value) -> None:
    spec = context.spec
    lane = context.masked(spec.n - column, spec.n)
    spec.store(context.builder, context.batch, row, column + context.lane.index, lane, value)
