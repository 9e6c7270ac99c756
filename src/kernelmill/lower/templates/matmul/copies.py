"""Copies of operands into scratch: a task's rows of A, a panel of B."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kernelmill.core.dim import Dim, ceildiv, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.depth import Depth, visit_along_k, visit_each_k
from kernelmill.lower.emit.microkernel import transpose
from kernelmill.lower.emit.packed import unsigned_halves
from kernelmill.lower.templates.matmul.context import BlockedContext
from kernelmill.lower.templates.matmul.spec import Operand, loader


def copy_b(context: BlockedContext, depth: Depth, tile: Dim) -> None:
    """Copy a panel of B, for all of `depth`, into scratch."""
    spec, lanes, width = context.spec, context.schedule.lanes, context.schedule.width
    first = context.scratch.b - depth.start * depth.inner * width
    if spec.b.contiguous_along == Along.K:
        _turn_b(context, depth, tile, first)
    elif spec.b.direct or spec.b.panelled:
        starts = [tile * width + v * lanes for v in range(context.schedule.vectors)]
        masked = [
            context.masked(spec.n - start, spec.n, width, v * lanes)
            for v, start in enumerate(starts)
        ]
        _copy(context, spec.b, depth, starts, masked, lambda k: first + k * width)
    else:
        # One vector for every k, so that what depends on the columns alone is computed once.
        left = minimum(width, spec.n - tile * width)
        with context.builder.loop(0, ceildiv(left, lanes), prefix="v") as vector:
            place = vector.index * lanes
            start = tile * width + place
            lane = context.lane_at(start)
            _copy(context, spec.b, depth, [start], [lane], lambda k: first + k * width + place)


def _copy(
    context: BlockedContext, operand: Operand, depth: Depth, starts: Sequence[Dim],
    masked: Sequence[Lane], place: Callable[[Dim], Dim],
) -> None:  # fmt: skip
    """Copy vectors of neighbouring rows or columns, from these on, for each k: side by side to
    `place(number of k)`."""
    load = loader(operand)

    def copy(k: Dims) -> None:
        offset = place(depth.number(k))
        for number, (start, lane) in enumerate(zip(starts, masked, strict=True)):
            value = load(context.builder, context.batch, start + context.lane.index, k, lane)
            context.write(offset + number * context.schedule.lanes, value)

    visit_each_k(context.builder, depth, copy)


def _turned(
    context: BlockedContext, operand: Operand, outer: Sequence[Dim], k: Dims, lane: Lane
) -> list[Value]:
    """Transpose a square block, vectors along k of these rows or columns, in registers.

    A block at the end of the last k axis fills rows of a panel that are written after it, or are
    beyond the last one.
    """
    load, along = loader(operand), context.along(k)
    block = [load(context.builder, context.batch, at, along, lane) for at in outer]
    return transpose(context.builder, block)


def _turn_b(context: BlockedContext, depth: Depth, tile: Dim, first: Dim) -> None:
    """Transpose blocks of neighbouring columns, of which those that are not there repeat the
    last."""
    spec, width, lanes = context.spec, context.schedule.width, context.schedule.lanes
    groups = ceildiv(minimum(width, spec.n - tile * width), lanes)
    single = len(depth.axes) == 1
    stop, size = (depth.stop, depth.stop - depth.start) if single else (depth.axes[-1],) * 2

    def copy(k: Dims) -> None:
        lane = context.masked(stop - k[-1], size)
        with context.builder.loop(0, groups, prefix="v") as group:
            start = tile * width + group.index * lanes
            columns = [minimum(start + column, spec.n - 1) for column in range(lanes)]
            offset = first + depth.number(k) * width + group.index * lanes
            for i, value in enumerate(_turned(context, spec.b, columns, k, lane)):
                context.write(offset + i * width, value)

    visit_along_k(context.builder, depth, lanes, copy)


def copy_a(context: BlockedContext) -> None:
    """Copy the task's rows of A, for all k, into scratch."""
    spec, schedule = context.spec, context.schedule
    start = context.first_row_tile * schedule.rows
    count = minimum(schedule.row_tiles * schedule.rows, spec.m - start)
    depth = Depth.whole(spec.k)
    if spec.a.contiguous_along == Along.OUTER:
        with context.builder.loop(0, ceildiv(count, schedule.lanes), prefix="v") as vector:
            row = vector.index * schedule.lanes
            lane = context.masked(count - row, count)
            place = partial(place_of_a, context, row)
            _copy(context, spec.a, depth, [start + row], [lane], place)
        return
    with context.builder.loop(0, count, prefix="m") as row:
        _copy_row(context, depth, start + row.index, row.index)


def panels_of_a(context: BlockedContext) -> None:
    """Copy the task's rows of A, for all k, into panels in scratch: zeros beyond the last row, or
    where blocks are turned the last again."""
    spec, rows, lanes = context.spec, context.schedule.rows, context.schedule.lanes
    depth, size = Depth.whole(spec.k), spec.k[-1]
    with context.row_tiles() as tile:
        place = partial(place_in_panel, context, tile)
        starts = [tile * rows + first for first in range(0, rows, lanes)]

        def turn(k: Dims) -> None:
            lane = context.masked(size - k[-1], size)
            for v, start in enumerate(starts):
                block = [minimum(start + i, spec.m - 1) for i in range(lanes)]
                for i, value in enumerate(_turned(context, spec.a, block, k, lane)):
                    context.write(place(depth.number(k) + i) + v * lanes, value)

        if spec.a.contiguous_along == Along.OUTER:
            masked = [
                context.masked(spec.m - start, spec.m, rows, v * lanes)
                for v, start in enumerate(starts)
            ]
            _copy(context, spec.a, depth, starts, masked, place)
        else:
            visit_along_k(context.builder, depth, lanes, turn)


def place_in_panel(context: BlockedContext, tile: Dim, k: Dim) -> Dim:
    """Return the offset in scratch of the rows of a row tile of A for one k."""
    layout, local = context.scratch, tile - context.first_row_tile
    return layout.a + (local * context.spec.depth + k) * layout.row_stride


def _copy_row(context: BlockedContext, depth: Depth, row: Dim, local: Dim) -> None:
    load, size = loader(context.spec.a), depth.axes[-1]

    def copy(k: Dims) -> None:
        lane = context.masked(size - k[-1], size)
        value = load(context.builder, context.batch, row, context.along(k), lane)
        place = place_of_a(context, local, depth.number(k))
        if context.halves is None:
            context.write(place, value, lane.mask)
            return
        even, odd = unsigned_halves(context.builder, value)
        context.write(place, even, lane.mask)
        context.write(place - context.scratch.a + context.scratch.odd_a, odd, lane.mask)

    visit_along_k(context.builder, depth, context.schedule.lanes, copy)


def place_of_a(context: BlockedContext, row: Dim, k: Dim) -> Dim:
    """Return the offset in scratch of an element of A; `row` counts from the task's first."""
    layout = context.scratch
    if context.spec.a.contiguous_along == Along.OUTER:
        return layout.a + k * layout.row_stride + row
    return layout.a + row * context.spec.depth + k
