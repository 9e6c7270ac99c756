"""The operands as a tile reads them: from panels of constants, from scratch, or where they lie."""

from __future__ import annotations

from kernelmill.core.dim import Dim, ceildiv, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims, part_count
from kernelmill.lower.emit.callbacks import LoadElement
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.depth import Depth, for_each_k, visit_each_k
from kernelmill.lower.emit.microkernel import Fetch
from kernelmill.lower.emit.panels import panel_index
from kernelmill.lower.emit.transpose import transpose
from kernelmill.lower.templates.matmul.context import BlockedContext
from kernelmill.lower.templates.matmul.spec import Contraction, Operand


def rows_of_a(context: BlockedContext, depth: Depth, tile: Dim) -> Fetch:
    """Elements of A in tile number `tile`."""
    spec, rows = context.spec, context.schedule.rows
    if context.schedule.pack_a and spec.a.packed is None:
        first = (tile - context.first_row_tile) * rows
        return lambda i, k: context.read_copied(_scratch_a(context, first + i, depth.number(k)))
    return elements_of_a(context, spec, context.batch, depth, tile, rows)


def elements_of_a(
    context: EmitContext, spec: Contraction, batch: Dims, depth: Depth, tile: Dim, rows: int
) -> Fetch:
    """Elements of A in tile number `tile` of so many rows, from panels of constants or where they
    lie."""
    if spec.a.packed is not None:
        name = spec.a.packed
        return lambda i, k: _read_packed(
            context, spec, name, panel_index(tile, depth.number(k), spec.depth, rows) + i, 1
        )
    load = loader(spec.a)
    return lambda i, k: load(context.builder, batch, tile * rows + i, k, None)


def vectors_of_b(context: BlockedContext, depth: Depth, tile: Dim, vectors: int) -> Fetch:
    """Vectors of B in tile number `tile`."""
    spec, schedule = context.spec, context.schedule
    lanes = schedule.lanes
    if spec.b.packed is not None:
        name = spec.b.packed
        return lambda v, k: _read_packed(
            context, spec, name, context.panel(tile, depth.number(k)) + v * lanes, lanes
        )
    if schedule.pack_b:
        stride = schedule.panel_stride(spec)
        first = context.scratch.b - depth.start * depth.inner * stride
        return lambda v, k: context.read_copied(first + depth.number(k) * stride + v * lanes, lanes)
    return _vectors(
        context, spec.b.factored[0] if spec.b.factored else loader(spec.b), tile, vectors
    )


def prefetching_b(context: BlockedContext, b: Fetch, depth: Depth, row: Dim, column: Dim) -> Fetch:
    """`b`, and with its products the row tile's share of the next panel brought near: all row tiles
    together ask for each line a few times at most."""
    spec, schedule, name = context.spec, context.schedule, context.spec.b.packed
    assert name is not None
    vectors, tiles, lanes = schedule.vectors, schedule.row_tiles, schedule.lanes
    lines = part_count(vectors, tiles)
    step = lines * lanes // min(lanes, _power_of_two(tiles // vectors))
    share = step * spec.depth
    first = minimum((row - context.first_row_tile) * share, vectors * lanes * spec.depth - share)
    first = context.panel(column + 1, 0) + first

    def fetch(v: int, k: Dims) -> Value:
        for line in range(lines if v == 0 else 0):
            place = first + depth.number(k) * step + line * lanes
            context.builder.prefetch(name, place * spec.group)
        return b(v, k)

    return fetch


def prefetching_a(context: BlockedContext, a: Fetch, tile: Dim) -> Fetch:
    """`a`, read where it lies, and with its products the rows of the next tile brought near.

    Each row is a stream of its own, which a processor would have to find out about in every tile.
    """
    rows, prefetch = context.schedule.rows, context.spec.a.prefetch
    assert prefetch is not None

    def fetch(i: int, k: Dims) -> Value:
        if i == 0:
            prefetch(context.batch, (tile + 1) * rows, k[0] * rows)
        return a(i, k)

    return fetch


def _power_of_two(count: int) -> int:
    """The largest up to `count`, and at least 1."""
    return 1 << max(count, 1).bit_length() - 1


def factors_of_b(context: BlockedContext, tile: Dim, vectors: int) -> Fetch | None:
    """What the sums of each index of the first k axis are multiplied with, for each vector."""
    b = context.spec.b
    if b.factored is None or context.schedule.pack_b:
        return None
    return _vectors(context, b.factored[1], tile, vectors)


def _vectors(context: BlockedContext, load: LoadElement, tile: Dim, vectors: int) -> Fetch:
    n, lanes = context.spec.n, context.schedule.lanes
    starts = [tile * context.schedule.width + v * lanes for v in range(vectors)]
    masked = [context.masked(n - start, n) for start in starts]
    return lambda v, k: load(
        context.builder, context.batch, starts[v] + context.lane.index, k, masked[v]
    )


def is_flat(context: BlockedContext) -> bool:
    """Whether k may run as one axis, since neither operand is read where it lies."""
    spec, schedule = context.spec, context.schedule
    return (spec.a.packed is not None or schedule.pack_a) and (
        spec.b.packed is not None or schedule.pack_b
    )


def loader(operand: Operand) -> LoadElement:
    """How to read an operand that is not packed."""
    if operand.load is None:
        raise ValueError("an operand that is not packed needs a `load`")
    return operand.load


def _read_packed(
    context: EmitContext, spec: Contraction, name: str, index: Dim, lanes: int
) -> Value:
    group = spec.group
    if group == 1:
        return context.read_packed(name, index, lanes)
    value = context.builder.load(name, index * group, context.packed_dtype(name), lanes * group)
    return context.builder.op("bitcast", value, dtype=spec.element, lanes=lanes)


# ---- copies into scratch --------------------------------------------------------------------


def copy_b(context: BlockedContext, depth: Depth, tile: Dim) -> None:
    """A panel of B, for all of `depth`, into scratch."""
    lanes, width = context.schedule.lanes, context.schedule.width
    if context.spec.b.contiguous_along == "k":
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
    masked = [context.masked(spec.n - start, spec.n) for start in starts]
    first = context.scratch.b - depth.start * depth.inner * width

    def copy(k: Dims) -> None:
        offset = first + depth.number(k) * width
        for column, start, lane in zip(columns, starts, masked, strict=True):
            value = load(context.builder, context.batch, start + context.lane.index, k, lane)
            context.write(offset + column, value)

    visit_each_k(context.builder, depth, copy)


def _turn_b(context: BlockedContext, depth: Depth, tile: Dim) -> None:
    """Square blocks, vectors along k of neighbouring columns, are turned round in registers.

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
    """The task's rows of A, for all k, into scratch."""
    spec, schedule = context.spec, context.schedule
    start = context.first_row_tile * schedule.rows
    count = minimum(schedule.row_tiles * schedule.rows, spec.m - start)
    depth = Depth.whole(spec.k)
    if spec.a.contiguous_along == "outer":
        with context.builder.loop(0, ceildiv(count, schedule.lanes), prefix="v") as vector:
            _copy_rows(context, depth, start, vector.index * schedule.lanes, count)
        return
    with context.builder.loop(0, count, prefix="m") as row:
        _copy_row(context, depth, start + row.index, row.index)


def _copy_rows(context: BlockedContext, depth: Depth, start: Dim, row: Dim, count: Dim) -> None:
    load = loader(context.spec.a)
    lane = context.masked(count - row, count)

    def copy(k: Dims) -> None:
        value = load(context.builder, context.batch, start + row + context.lane.index, k, lane)
        context.write(_scratch_a(context, row, depth.number(k)), value)

    visit_each_k(context.builder, depth, copy)


def _copy_row(context: BlockedContext, depth: Depth, row: Dim, local: Dim) -> None:
    load = loader(context.spec.a)
    size = depth.axes[-1]

    def copy(k: Dims, _: list[Value]) -> list[Value]:
        lane = context.masked(size - k[-1], size)
        along = (*k[:-1], k[-1] + context.lane.index)
        value = load(context.builder, context.batch, row, along, lane)
        context.write(_scratch_a(context, local, depth.number(k)), value, lane.mask)
        return []

    for_each_k(context.builder, depth, [], copy, context.schedule.lanes)


def _scratch_a(context: BlockedContext, row: Dim, k: Dim) -> Dim:
    """Where scratch holds an element of A; `row` counts from the task's first."""
    layout = context.scratch
    if context.spec.a.contiguous_along == "outer":
        return layout.a + k * layout.row_stride + row
    return layout.a + row * context.spec.depth + k
