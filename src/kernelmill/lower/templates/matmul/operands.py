"""The operands of a tile: read from packed panels, from scratch, or in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, maximum, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.emit.access import LoadElement, PrefetchElement
from kernelmill.lower.emit.context import LINE_BYTES, EmitContext
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.microkernel import Fetch, with_prefetch
from kernelmill.lower.emit.packed import AHEAD_BYTES, panel_index, signed_halves, widen
from kernelmill.lower.templates.matmul.blocked_tiles import ReadA, ReadB
from kernelmill.lower.templates.matmul.context import BlockedContext
from kernelmill.lower.templates.matmul.copies import (
    copy_a,
    copy_b,
    panels_of_a,
    place_in_panel,
    place_of_a,
)
from kernelmill.lower.templates.matmul.spec import Contraction, FillPanel, loader


@dataclass(frozen=True)
class RowsOfA:
    """Readers of A for the tiles of a task.

    elements  those in a tile, by its number
    flat      k may run as one axis, since A is not read where it lies
    odd       those of the odd numbers of words, where `elements` has the even ones alone
    """

    elements: Callable[[Depth, Dim], Fetch]
    flat: bool = True
    odd: Callable[[Depth, Dim], Fetch] | None = None


def rows_of_a(context: BlockedContext) -> RowsOfA:
    """Return the readers of A for a task's tiles. Emits the copies that the first of them needs."""
    spec, rows = context.spec, context.schedule.rows

    def elements(depth: Depth, tile: Dim) -> Fetch:
        return elements_of_a(context, spec, context.batch, depth, tile, rows)

    def copied(depth: Depth, tile: Dim, further: Dim = 0) -> Fetch:
        first, count = (tile - context.first_row_tile) * rows, spec.unit.rows
        return lambda i, k: context.read_copied(
            place_of_a(context, first + i, depth.number(k)) + further, count
        )

    def packed(depth: Depth, tile: Dim) -> Fetch:
        name = _need(spec.a.packed, "A is not packed")

        def read(i: int, k: Dims, lanes: int) -> Value:
            index = panel_index(tile, depth.number(k), spec.depth, rows) + i
            return _read_packed(context, spec, name, index, lanes)

        return _by_lane(context, read, rows)

    def in_panels(depth: Depth, tile: Dim) -> Fetch:
        def read(i: int, k: Dims, lanes: int) -> Value:
            return context.read_copied(place_in_panel(context, tile, depth.number(k)) + i, lanes)

        if not context.schedule.by_lane:
            return lambda i, k: read(i, k, spec.unit.rows)
        return _by_lane(context, read, context.scratch.row_stride)

    match context.schedule.a:
        case ReadA.PACKED:
            _need(spec.a.packed, "A is not packed")
            return RowsOfA(packed if context.schedule.by_lane else elements)
        case ReadA.PANELS:
            panels_of_a(context)
            return RowsOfA(in_panels)
        case ReadA.IN_PLACE:
            loader(spec.a)
            return RowsOfA(elements, flat=False)
        case ReadA.PREFETCH:
            loader(spec.a)
            prefetch = _need(spec.a.prefetch, "A cannot be prefetched")
            return RowsOfA(
                lambda depth, tile: _prefetching_a(context, elements(depth, tile), prefetch, tile),
                flat=False,
            )
        case ReadA.COPIED:
            copy_a(context)
            odd = partial(copied, further=context.scratch.odd_a - context.scratch.a)
            return RowsOfA(copied, odd=None if context.halves is None else odd)


def _by_lane(context: BlockedContext, read: Callable[[int, Dims, int], Value], rows: int) -> Fetch:
    """Return elements of one k as lanes of vectors, `read(i, k, lanes)`, whole ones in this number
    of `rows`."""
    schedule, lanes = context.schedule, context.schedule.lanes
    whole = rows // lanes * lanes
    together = schedule.vectors * (schedule.rows + 1) + whole // lanes <= _REGISTERS

    @cache
    def vector(first: int, k: Dims) -> Value:
        return read(first, k, lanes)

    def fetch(i: int, k: Dims) -> Value:
        if i == 0 and together:
            for first in range(0, whole, lanes):
                vector(first, k)
        lane = i % lanes
        if i - lane + lanes > rows:
            return read(i, k, 1)
        return context.builder.op("extract", vector(i - lane, k), lane)

    return fetch


def elements_of_a(
    context: EmitContext, spec: Contraction, batch: Dims, depth: Depth, tile: Dim, rows: int
) -> Fetch:
    """Return a reader of A in tile number `tile` of `rows` rows, from panels of constants or in
    place; of a unit that works on blocks, from panels, all rows of a block together."""
    if spec.a.packed is not None:
        name = spec.a.packed
        return lambda i, k: _read_packed(
            context, spec, name, panel_index(tile, depth.number(k), spec.depth, rows) + i,
            spec.unit.rows,
        )  # fmt: skip
    load = loader(spec.a)
    return lambda i, k: load(context.builder, batch, tile * rows + i, k, None)


@dataclass(frozen=True)
class PanelsOfB:
    """Readers of B for the tiles of a task.

    vectors  so many in a column tile, by its number; of a unit that works on blocks they have its
             columns, else as many as a vector has lanes
    fill     make the column tile's panel in scratch, if it has one
    ahead    the vectors as `vectors` gives them to a tile, by its row and column, and with its
             products the tile's share of the next panel is brought near, or what comes some way
             behind
    factors  what the sums of each index of the first k axis are multiplied with, for each vector
    flat     k may run as one axis, since B is not read where it lies
    odd      the vectors of the odd numbers of words, where `vectors` has the even ones alone
    """

    vectors: Callable[[Depth, Dim, int], Fetch]
    fill: Callable[[Depth, Dim], None] = lambda depth, column: None
    ahead: Callable[[Fetch, Depth, Dim, Dim], Fetch] = lambda vectors, depth, row, column: vectors
    factors: Callable[[Dim, int], Fetch | None] = lambda column, count: None
    flat: bool = True
    odd: Callable[[Depth, Dim, int], Fetch] | None = None


def panels_of_b(context: BlockedContext) -> PanelsOfB:
    """Return the readers of B for a task's tiles. Emits the copies that the first of them needs."""
    panels = _panels_of_b(context)
    if not context.schedule.streams_b:
        return panels
    return replace(panels, ahead=partial(_streaming_b, context))


def _panels_of_b(context: BlockedContext) -> PanelsOfB:
    b, lanes = context.spec.b, context.spec.unit.columns or context.schedule.lanes
    widened = context.schedule.widened

    def packed(depth: Depth, tile: Dim, _: int) -> Fetch:
        name = _need(b.packed, "B is not packed")
        return lambda v, k: _read_packed(
            context, context.spec, name, context.panel(tile, depth.number(k)) + v * lanes, lanes
        )

    def copied(depth: Depth, _: Dim, __: int, start: Dim = context.scratch.b) -> Fetch:
        stride = context.schedule.panel_stride(context.spec)
        first = start - depth.start * depth.inner * stride
        return lambda v, k: context.read_copied(first + depth.number(k) * stride + v * lanes, lanes)

    odd = None if context.halves is None else partial(copied, start=context.scratch.odd_b)
    match context.schedule.b:
        case ReadB.PACKED:
            if widened:
                return PanelsOfB(copied, partial(_widen_b, context), odd=odd)
            return PanelsOfB(packed)
        case ReadB.PREFETCH:
            ahead = partial(_prefetching_b, context, _step_of_b(context))
            if widened:
                return PanelsOfB(copied, partial(_widen_b, context), ahead, odd=odd)
            return PanelsOfB(packed, ahead=ahead)
        case ReadB.IN_PLACE:
            return _in_place(context)
        case ReadB.COPIED:
            return PanelsOfB(copied, partial(copy_b, context))
        case ReadB.FILLED:
            return PanelsOfB(copied, _filling(context))


def _widen_b(context: BlockedContext, depth: Depth, tile: Dim) -> None:
    name = _need(context.spec.b.packed, "B is not packed")
    first = context.panel(tile, depth.start * depth.inner)
    if context.halves is not None:
        _halve_b(context, name, first, depth)
        return
    widen(context, name, first, depth.size * context.schedule.width, context.scratch.b)


def _halve_b(context: BlockedContext, name: str, first: Dim, depth: Depth) -> None:
    """Split words into even numbers, and behind them the odd ones, in scratch."""
    lanes, layout = context.schedule.lanes, context.scratch
    with context.builder.loop(0, depth.size * context.schedule.width, lanes, prefix="v") as loop:
        words = _read_packed(context, context.spec, name, first + loop.index, lanes)
        even, odd = signed_halves(context.builder, words)
        context.write(layout.b + loop.index, even)
        context.write(layout.odd_b + loop.index, odd)


def _in_place(context: BlockedContext) -> PanelsOfB:
    b = context.spec.b
    if b.factored is None:
        load = loader(b)
        return PanelsOfB(lambda _, tile, count: _vectors(context, load, tile, count), flat=False)
    load, factor = b.factored
    return PanelsOfB(
        lambda _, tile, count: _vectors(context, load, tile, count),
        factors=lambda tile, count: _vectors(context, factor, tile, count),
        flat=False,
    )


def _filling(context: BlockedContext) -> Callable[[Depth, Dim], None]:
    """Return a callback that fills a panel from B's source: from input kept for all of the task or,
    with blocks along k, for each panel anew."""
    spec, schedule = context.spec, context.schedule
    stride = schedule.panel_stride(spec)
    kept = _need(schedule.kept(spec), "B has no source")

    def prepare(depth: Depth, begin: Dim, end: Dim) -> FillPanel:
        return kept.prepare(context, context.batch, context.scratch.source, depth, begin, end)

    whole = None
    if not schedule.depth_block:
        begin = context.column_block * (schedule.column_tiles * schedule.width)
        end = minimum(spec.n, begin + schedule.column_tiles * schedule.width)
        whole = prepare(Depth.whole(spec.k), begin, end)

    def fill(depth: Depth, column: Dim) -> None:
        begin = column * schedule.width
        end = minimum(spec.n, begin + schedule.width)
        fill_panel = whole or prepare(depth, begin, end)
        fill_panel(begin, end, context.scratch.b - depth.start * depth.inner * stride, stride)

    return fill


def _step_of_b(context: BlockedContext) -> Dim:
    """Return how many elements of the next panel a row tile prefetches with each k. All row tiles
    together ask for each line a few times at most; of a symbolic number of rows a task may have
    fewer tiles than its schedule gives it, and they share the panel among themselves.

    No more than a vector: where few tiles ask for more than a line with each k, products wait
    longer than for lines that nobody has asked for (on AMD's Zen 4, two tiles: 1.09 times)."""
    spec, schedule = context.spec, context.schedule
    vectors, tiles, lanes = schedule.vectors, schedule.row_tiles, schedule.lanes
    if isinstance(spec.m, int):
        return lanes // min(lanes, _power_of_two(tiles // vectors))
    there = minimum(tiles, ceildiv(spec.m, schedule.rows) - context.first_row_tile)
    step = minimum(lanes, ceildiv(vectors * lanes, maximum(1, there)))
    return context.builder.let(context.builder.index(step), 1, lanes)


def _prefetching_b(
    context: BlockedContext, step: Dim, b: Fetch, depth: Depth, row: Dim, column: Dim
) -> Fetch:
    """Return `b` with prefetches of the row tile's share of the next panel, `step` elements with
    each k."""
    spec, schedule = context.spec, context.schedule
    name = _need(spec.b.packed, "B is not packed")
    share = step * spec.depth
    whole = schedule.width * spec.depth
    first = minimum((row - context.first_row_tile) * share, whole - share)
    first = context.panel(column + 1, 0) + first
    every = 1
    several = schedule.by_lane or spec.unit.on_blocks
    if several and isinstance(step, int):
        every = LINE_BYTES // (step * context.packed_dtype(name).bytes * spec.group)

    def ask(k: Dims) -> None:
        context.builder.prefetch(name, (first + depth.number(k) * step) * spec.group)

    return with_prefetch(b, ask, every)


def _streaming_b(context: BlockedContext, b: Fetch, depth: Depth, row: Dim, column: Dim) -> Fetch:
    """Return `b` with prefetches of lines some way behind its own."""
    name = _need(context.spec.b.panels, "B is not in panels")
    bytes, group = context.packed_dtype(name).bytes, context.spec.group
    size = context.schedule.width * group * bytes  # of what is read with each k

    def ask(k: Dims) -> None:
        first = context.panel(column, depth.number(k)) * group + AHEAD_BYTES // bytes
        for start in range(0, size, LINE_BYTES):
            context.builder.prefetch(name, first + start // bytes)

    return with_prefetch(b, ask, LINE_BYTES // size)


def _prefetching_a(
    context: BlockedContext, a: Fetch, prefetch: PrefetchElement, tile: Dim
) -> Fetch:
    """Return `a`, read in place, with prefetches of the rows of the next tile.

    Each row is a stream of its own, which a processor would have to find out about in every tile.
    """
    rows = context.schedule.rows
    return with_prefetch(a, lambda k: prefetch(context.batch, (tile + 1) * rows, k[0] * rows))


def _power_of_two(count: int) -> int:
    """Return the largest power of two up to `count`, and at least 1."""
    return 1 << max(count, 1).bit_length() - 1


def _vectors(context: BlockedContext, load: LoadElement, tile: Dim, vectors: int) -> Fetch:
    places = [v * context.schedule.lanes for v in range(vectors)]
    starts = [tile * context.schedule.width + place for place in places]
    existing = [context.columns(tile, place) for place in places]
    return lambda v, k: load(
        context.builder, context.batch, starts[v] + context.lane.index, k, existing[v]
    )


_REGISTERS = 31
"""Most registers of sums and operands with which a tile's rows are read before all products."""

T = TypeVar("T")


def _need(given: T | None, fault: str) -> T:
    """Return a part of an operand. ValueError for None, which does not fit the schedule."""
    if given is None:
        raise ValueError(f"the schedule does not fit the contraction: {fault}")
    return given


def _read_packed(
    context: EmitContext, spec: Contraction, name: str, index: Dim, lanes: int
) -> Value:
    group = spec.group
    if group == 1:
        return context.read_packed(name, index, lanes)
    value = context.builder.load(name, index * group, context.packed_dtype(name), lanes * group)
    return context.builder.op("bitcast", value, dtype=spec.element, lanes=lanes)
