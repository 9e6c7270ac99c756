"""Copies of operands into scratch: a task's rows of A, a panel of B."""

from __future__ import annotations

from kernelmill.core.dim import Dim, ceildiv, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.depth import Depth, for_each_k, visit_each_k
from kernelmill.lower.emit.lane_tile import transpose
from kernelmill.lower.emit.widened import unsigned_halves
from kernelmill.lower.templates.matmul.context import BlockedContext
from kernelmill.lower.templates.matmul.spec import loader


def copy_b(context: BlockedContext, depth: Depth, tile: Dim) -> None:
    """Copy a panel of B, for all of `depth`, into scratch."""
    lanes, width = context.schedule.lanes, context.schedule.width
    if context.spec.b.contiguous_along == Along.K:
        _turn_b(context, depth, tile)
    elif context.spec.b.direct or context.spec.b.panelled:
        _copy_columns(context, depth, tile, [v * lanes for v in range(context.schedule.vectors)])
    else:
        # One vector for every k, so that what depends on the columns alone is computed once.
        left = minimum(width, context.spec.n - tile * width)
        with context.builder.loop(0, ceildiv(left, lanes), prefix="v") as vector:
            _copy_columns(context, depth, tile, [vector.index * lanes])


def _copy_columns(context: BlockedContext, depth: Depth, tile: Dim, columns: list[Dim]) -> None:
    spec, width = context.spec, context.schedule.width
    load = loader(spec.b)
    starts = [tile * width + column for column in columns]
    # A place that a loop counts is that of a vector with columns.
    masked = [
        context.masked(spec.n - start, spec.n, width, column)
        if isinstance(column, int)
        else context.masked(spec.n - start, spec.n)
        for start, column in zip(starts, columns, strict=True)
    ]
    first = context.scratch.b - depth.start * depth.inner * width

    def copy(k: Dims) -> None:
        offset = first + depth.number(k) * width
        for column, start, lane in zip(columns, starts, masked, strict=True):
            value = load(context.builder, context.batch, start + context.lane.index, k, lane)
            context.write(offset + column, value)

    visit_each_k(context.builder, depth, copy)


def _turn_b(context: BlockedContext, depth: Depth, tile: Dim) -> None:
    """Transpose square blocks, vectors along k of neighbouring columns, in registers.

    A block at the end of the last k axis fills rows of the panel that are written after it, or are
    beyond the last one.
    """
    spec, schedule = context.spec, context.schedule
    width, lanes = schedule.width, schedule.lanes
    load = loader(spec.b)
    groups = ceildiv(minimum(width, spec.n - tile * width), lanes)
    single = len(depth.axes) == 1
    stop, size = (depth.stop, depth.stop - depth.start) if single else (depth.axes[-1],) * 2
    first = context.scratch.b - depth.start * depth.inner * width

    def copy(k: Dims, _: list[Value]) -> list[Value]:
        lane = context.masked(stop - k[-1], size)
        along = (*k[:-1], k[-1] + context.lane.index)
        with context.builder.loop(0, groups, prefix="v") as group:
            start = tile * width + group.index * lanes
            columns = [minimum(start + column, spec.n - 1) for column in range(lanes)]
            rows = [load(context.builder, context.batch, n, along, lane) for n in columns]
            offset = first + depth.number(k) * width + group.index * lanes
            for i, value in enumerate(transpose(context.builder, rows)):
                context.write(offset + i * width, value)
        return []

    for_each_k(context.builder, depth, [], copy, lanes)


def copy_a(context: BlockedContext) -> None:
    """Copy the task's rows of A, for all k, into scratch."""
    spec, schedule = context.spec, context.schedule
    start = context.first_row_tile * schedule.rows
    count = minimum(schedule.row_tiles * schedule.rows, spec.m - start)
    depth = Depth.whole(spec.k)
    if spec.a.contiguous_along == Along.OUTER:
        with context.builder.loop(0, ceildiv(count, schedule.lanes), prefix="v") as vector:
            _copy_rows(context, depth, start, vector.index * schedule.lanes, count)
        return
    with context.builder.loop(0, count, prefix="m") as row:
        _copy_row(context, depth, start + row.index, row.index)


def panels_of_a(context: BlockedContext) -> None:
    """Copy the task's rows of A, for all k, into panels in scratch."""
    if context.spec.a.contiguous_along == Along.OUTER:
        _copy_a(context)
    else:
        _turn_a(context)


def _copy_a(context: BlockedContext) -> None:
    """Copy vectors of neighbouring rows, zeros beyond the last."""
    spec, schedule = context.spec, context.schedule
    rows, lanes, load = schedule.rows, schedule.lanes, loader(spec.a)
    with context.row_tiles() as tile:
        places = range(0, rows, lanes)
        starts = [tile * rows + first for first in places]
        masked = [
            context.masked(spec.m - start, spec.m, rows, place)
            for start, place in zip(starts, places, strict=True)
        ]

        def copy(k: Dims) -> None:
            panel = place_in_panel(context, tile, Depth.whole(spec.k).number(k))
            for first, start, lane in zip(places, starts, masked, strict=True):
                row = start + context.lane.index
                value = load(context.builder, context.batch, row, k, lane)
                context.write(panel + first, value)

        visit_each_k(context.builder, Depth.whole(spec.k), copy)


def _turn_a(context: BlockedContext) -> None:
    """Transpose square blocks of neighbouring rows, vectors along k, in registers.

    A block at the end of the last k axis fills rows of the panel that are written after it, or are
    beyond the last one. Rows that are not there repeat the last.
    """
    spec, schedule = context.spec, context.schedule
    lanes, load, depth = schedule.lanes, loader(spec.a), Depth.whole(spec.k)
    size = depth.axes[-1]
    with context.row_tiles() as tile:

        def copy(k: Dims, _: list[Value]) -> list[Value]:
            lane = context.masked(size - k[-1], size)
            along = (*k[:-1], k[-1] + context.lane.index)
            for first in range(0, schedule.rows, lanes):
                rows = [minimum(tile * schedule.rows + first + i, spec.m - 1) for i in range(lanes)]
                block = [load(context.builder, context.batch, row, along, lane) for row in rows]
                for i, value in enumerate(transpose(context.builder, block)):
                    place = place_in_panel(context, tile, depth.number(k) + i) + first
                    context.write(place, value)
            return []

        for_each_k(context.builder, depth, [], copy, lanes)


def place_in_panel(context: BlockedContext, tile: Dim, k: Dim) -> Dim:
    """Return the offset in scratch of the rows of a row tile of A for one k."""
    layout, local = context.scratch, tile - context.first_row_tile
    return layout.a + (local * context.spec.depth + k) * layout.row_stride


def _copy_rows(context: BlockedContext, depth: Depth, start: Dim, row: Dim, count: Dim) -> None:
    load = loader(context.spec.a)
    lane = context.masked(count - row, count)

    def copy(k: Dims) -> None:
        value = load(context.builder, context.batch, start + row + context.lane.index, k, lane)
        context.write(place_of_a(context, row, depth.number(k)), value)

    visit_each_k(context.builder, depth, copy)


def _copy_row(context: BlockedContext, depth: Depth, row: Dim, local: Dim) -> None:
    load = loader(context.spec.a)
    size = depth.axes[-1]

    def copy(k: Dims, _: list[Value]) -> list[Value]:
        lane = context.masked(size - k[-1], size)
        along = (*k[:-1], k[-1] + context.lane.index)
        value = load(context.builder, context.batch, row, along, lane)
        place = place_of_a(context, local, depth.number(k))
        if context.halves is None:
            context.write(place, value, lane.mask)
            return []
        even, odd = unsigned_halves(context.builder, value)
        context.write(place, even, lane.mask)
        context.write(place - context.scratch.a + context.scratch.odd_a, odd, lane.mask)
        return []

    for_each_k(context.builder, depth, [], copy, context.schedule.lanes)


def place_of_a(context: BlockedContext, row: Dim, k: Dim) -> Dim:
    """Return the offset in scratch of an element of A; `row` counts from the task's first."""
    layout = context.scratch
    if context.spec.a.contiguous_along == Along.OUTER:
        return layout.a + k * layout.row_stride + row
    return layout.a + row * context.spec.depth + k
