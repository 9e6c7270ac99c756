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
from kernelmill.lower.templates.matmul.dot import sum_along_depth
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
from kernelmill.lower.templates.matmul.site import Site
from kernelmill.lower.templates.matmul.slide import slide
from kernelmill.lower.templates.matmul.spec import Contraction, FindRows, Found
from kernelmill.lower.templates.matmul.strip import Strip
from kernelmill.lower.templates.matmul.windows import copy_windows, fill_strip
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
    site = Site(
        builder,
        spec,
        schedule,
        lane=Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes),
        batch=unravel(floordiv(rest, columns), spec.batch),
        row_block=mod(task, rows),
        column_block=mod(rest, columns),
    )
    if spec.rows is not None:
        _found_rows(site, rest, spec.rows)
    else:
        _task(site)


def _found_rows(site: Site, rest: Dim, find: FindRows) -> None:
    """A task of a contraction that finds its rows: threads, which have neighbouring tasks, share
    the columns of a batch index and not the batch."""
    builder, size = site.builder, product(site.spec.batch)
    place = builder.let(builder.index(mod(rest, size)), 0, size - 1)
    found = find(builder, unravel(place, site.spec.batch))
    site = replace(
        site,
        spec=replace(site.spec, m=found.rows),
        batch=unravel(place, site.spec.batch),
        column_block=floordiv(rest, size),
    )
    first = builder.index(site.first_row_tile * site.schedule.rows)
    with builder.when(builder.op("gt", builder.index(found.rows), first)):
        _task(site)
    with builder.when(builder.op("eq", builder.index(site.row_block), 0)):
        _sums_of_nothing(site, found)


def _sums_of_nothing(site: Site, found: Found) -> None:
    """Zeros in the task's columns of the rows behind those that were found."""
    schedule = site.schedule
    with (
        site.builder.loop(found.rows, found.end, prefix="m") as row,
        site.column_tiles() as tile,
    ):
        vectors = ceildiv(site.spec.n, schedule.lanes)
        count = _at_most(schedule.vectors, vectors, tile * schedule.vectors)
        with site.builder.loop(0, count, prefix="v") as v:
            column = tile * schedule.width + v.index * schedule.lanes
            _store(site, row.index, column, site.zeros())


def _task(site: Site) -> None:
    spec, schedule = site.spec, site.schedule
    if schedule.slide_rows:
        slide(site)
        return
    if not schedule.inline:
        site.write(0, site.zeros())
    if schedule.pack_a:
        copy_a(site)
    strip = None
    if schedule.run_vectors and not schedule.depth_block:
        begin = site.column_block * (schedule.column_tiles * schedule.width)
        end = minimum(spec.n, begin + schedule.column_tiles * schedule.width)
        strip = fill_strip(site, Depth.whole(spec.k), begin, end)
    with site.column_tiles() as tile:
        _column_tile(site, tile, strip)


def _column_tile(site: Site, column: Dim, strip: Strip | None) -> None:
    """All of the task's tiles with these columns."""
    spec, block = site.spec, site.schedule.depth_block
    depth = Depth.whole(spec.k)
    if spec.bytewise:
        _clear(site, site.scratch.shift, site.schedule.width)
    if not block:
        _pack_b(site, depth, column, strip)
        _add_shift(site, depth, column)
        with site.row_tiles() as row:
            _sum_tile(site, depth, row, column)
            if not site.schedule.inline:
                _finish_tile(site, row, column)
        return
    _clear_sums(site)
    with site.builder.loop(0, spec.k[0], block, prefix="block") as start:
        part = Depth(spec.k, start.index, minimum(spec.k[0], start.index + block))
        _pack_b(site, part, column, None)
        _add_shift(site, part, column)
        with site.row_tiles() as row:
            _sum_tile(site, part, row, column)
    with site.row_tiles() as row:
        _finish_tile(site, row, column)


def _pack_b(site: Site, depth: Depth, column: Dim, strip: Strip | None) -> None:
    """Fill the panel of B in scratch, if it has one; from the task's strip, or the tile's own."""
    schedule, n = site.schedule, site.spec.n
    if schedule.run_vectors:
        if strip is None:
            begin = column * schedule.width
            strip = fill_strip(site, depth, begin, minimum(n, begin + schedule.width))
        copy_windows(site, strip, column)
    elif schedule.pack_b:
        copy_b(site, depth, column)


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


def _sum_tile(site: Site, depth: Depth, row: Dim, column: Dim) -> None:
    """Sum one tile, with as many rows and vectors as there are at the edges."""
    if site.schedule.dot:
        sum_along_depth(site, depth, column)
        return

    def with_vectors(vectors: int) -> Callable[[], None]:
        return lambda: _choose(site.builder, _row_choices(site, depth, row, column, vectors))

    spec, schedule = site.spec, site.schedule
    if isinstance(spec.n, int) and spec.n % schedule.width:
        full, rest = divmod(spec.n, schedule.width)
        last = part_count(rest, schedule.lanes)
        if last < schedule.vectors:
            narrow = with_vectors(last)
            choices = [(full - column, with_vectors(schedule.vectors)), (None, narrow)]
            _choose(site.builder, choices if full else choices[1:])
            return
    with_vectors(schedule.vectors)()


def _row_choices(site: Site, depth: Depth, row: Dim, column: Dim, vectors: int) -> Sequence[Choice]:
    m, rows = site.spec.m, site.schedule.rows

    def with_rows(count: int) -> Callable[[], None]:
        return lambda: _register_tile(site, depth, row, column, count, vectors)

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
    site: Site, depth: Depth, row: Dim, column: Dim, rows: int, vectors: int
) -> None:
    builder, schedule = site.builder, site.schedule
    tile = Tile(
        rows,
        vectors,
        schedule.lanes,
        site.dtype,
        schedule.fused,
        site.spec.unit,
        site.spec.b.panelled,
    )
    if is_flat(site):
        depth = depth.collapsed()
    a = rows_of_a(site, depth, row)
    b = vectors_of_b(site, depth, column, vectors)
    if schedule.ahead:
        b = fetching_ahead(site, b, depth, row, column)
    if schedule.rows_ahead:
        a = expecting_rows(site, a, row)
    places = [
        _sums(site, row) + i * schedule.width + v * schedule.lanes
        for i in range(rows)
        for v in range(vectors)
    ]
    if schedule.inline:
        initial = [site.zeros()] * len(places)
    elif schedule.depth_block:
        initial = [site.read(place, schedule.lanes) for place in places]
    else:
        # From memory, so that LLVM does not set these registers before it is known that this tile
        # is the one, at the cost of another tile's registers.
        initial = [site.read(0, schedule.lanes)] * len(places)
    factors = factors_of_b(site, column, vectors)
    sums = tile.sum_products(builder, depth, a, b, initial, factors)
    if schedule.inline:
        for v, value in enumerate(sums):
            _store(site, row, column * schedule.width + v * schedule.lanes, value)
        return
    for place, value in zip(places, sums, strict=True):
        site.write(place, value)


def _sums(site: Site, row: Dim) -> Dim:
    """Where scratch holds the sums of a tile."""
    schedule = site.schedule
    slot = row - site.first_row_tile if schedule.depth_block else 0
    return site.scratch.sums + slot * (schedule.rows * schedule.width)


def _clear_sums(site: Site) -> None:
    schedule = site.schedule
    _clear(site, site.scratch.sums, schedule.row_tiles * schedule.rows * schedule.width)


def _clear(site: Site, start: int, size: int) -> None:
    lanes, zeros = site.schedule.lanes, site.zeros()
    with site.builder.loop(0, size // lanes, prefix="v") as loop:
        site.write(start + loop.index * lanes, zeros)


def _add_shift(site: Site, depth: Depth, column: Dim) -> None:
    """With bytes: 128 times the sums of the tile's columns, which A's bytes add to every row."""
    if not site.spec.bytewise:
        return
    schedule, shift = site.schedule, site.scratch.shift
    tile = Tile(1, schedule.vectors, schedule.lanes, site.dtype, schedule.fused, site.spec.unit)
    b = vectors_of_b(site, depth, column, schedule.vectors)
    places = [shift + v * schedule.lanes for v in range(schedule.vectors)]
    known = [site.read(place, schedule.lanes) for place in places]
    word = site.builder.op("splat", WORD_OF_128, dtype=site.dtype)
    sums = tile.sum_products(site.builder, depth, lambda i, k: word, b, known)
    for place, value in zip(places, sums, strict=True):
        site.write(place, value)


# ---- epilogue -------------------------------------------------------------------------------


def _finish_tile(site: Site, row: Dim, column: Dim) -> None:
    """Hand the sums of one tile to the caller's epilogue."""
    spec, schedule, builder = site.spec, site.schedule, site.builder
    first = row * schedule.rows
    rows = _at_most(schedule.rows, spec.m, first)
    vectors = _at_most(schedule.vectors, ceildiv(spec.n, schedule.lanes), column * schedule.vectors)
    with (
        builder.loop(0, rows, prefix="m") as i,
        builder.loop(0, vectors, prefix="v") as v,
    ):
        place = _sums(site, row) + i.index * schedule.width + v.index * schedule.lanes
        value = site.read(place, schedule.lanes)
        if spec.bytewise:
            shift = site.read(site.scratch.shift + v.index * schedule.lanes, schedule.lanes)
            value = builder.op("sub", value, shift)
        _store(site, first + i.index, column * schedule.width + v.index * schedule.lanes, value)


def _at_most(count: int, size: Dim, start: Dim) -> Dim:
    """How many of `count` from `start` on are within `size`."""
    return count if mod(size, count) == 0 else minimum(count, size - start)


def _store(site: Site, row: Dim, column: Dim, value: Value) -> None:
    spec = site.spec
    lane = site.lanes(spec.n - column, spec.n)
    spec.store(site.builder, site.batch, row, column + site.lane.index, lane, value)
