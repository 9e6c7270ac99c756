"""The operands as a tile reads them: from panels of constants, from scratch, or where they lie."""

from __future__ import annotations

from kernelmill.core.dim import Dim, ceildiv, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims, part_count
from kernelmill.lower.emit.callbacks import LoadElement
from kernelmill.lower.emit.depth import Depth, for_each_k, visit_each_k
from kernelmill.lower.emit.microkernel import Fetch
from kernelmill.lower.emit.panels import panel_index
from kernelmill.lower.emit.transpose import transpose
from kernelmill.lower.templates.matmul.site import Site
from kernelmill.lower.templates.matmul.spec import Operand


def rows_of_a(site: Site, depth: Depth, tile: Dim) -> Fetch:
    """Elements of A in tile number `tile`."""
    spec, schedule, rows = site.spec, site.schedule, site.schedule.rows
    if spec.a.packed is not None:
        name = spec.a.packed
        return lambda i, k: _packed(
            site, name, panel_index(tile, depth.number(k), spec.depth, rows) + i, 1
        )
    if schedule.pack_a:
        first = (tile - site.first_row_tile) * rows
        return lambda i, k: site.read_packed(_scratch_a(site, first + i, depth.number(k)))
    load = loader(spec.a)

    def direct(i: int, k: Dims) -> Value:
        return load(site.builder, site.batch, tile * rows + i, k, None)

    return direct


def vectors_of_b(site: Site, depth: Depth, tile: Dim, vectors: int) -> Fetch:
    """Vectors of B in tile number `tile`."""
    spec, schedule = site.spec, site.schedule
    lanes = schedule.lanes
    if spec.b.packed is not None:
        name = spec.b.packed
        return lambda v, k: _packed(
            site, name, site.panel(tile, depth.number(k)) + v * lanes, lanes
        )
    if schedule.pack_b:
        stride = schedule.panel_stride
        first = site.scratch.b - depth.start * depth.inner * stride
        return lambda v, k: site.read_packed(first + depth.number(k) * stride + v * lanes, lanes)
    return _vectors(site, spec.b.factored[0] if spec.b.factored else loader(spec.b), tile, vectors)


def fetching_ahead(site: Site, b: Fetch, depth: Depth, row: Dim, column: Dim) -> Fetch:
    """`b`, and with its products the row tile's share of the next panel brought near: all row tiles
    together ask for each line a few times at most."""
    spec, schedule, name = site.spec, site.schedule, site.spec.b.packed
    assert name is not None
    vectors, tiles, lanes = schedule.vectors, schedule.row_tiles, schedule.lanes
    lines = part_count(vectors, tiles)
    step = lines * lanes // min(lanes, _power_of_two(tiles // vectors))
    share = step * spec.depth
    first = minimum((row - site.first_row_tile) * share, vectors * lanes * spec.depth - share)
    first = site.panel(column + 1, 0) + first

    def fetch(v: int, k: Dims) -> Value:
        for line in range(lines if v == 0 else 0):
            place = first + depth.number(k) * step + line * lanes
            site.builder.prefetch(name, place * spec.words)
        return b(v, k)

    return fetch


def expecting_rows(site: Site, a: Fetch, tile: Dim) -> Fetch:
    """`a`, read where it lies, and with its products the rows of the next tile brought near.

    Each row is a stream of its own, which a processor would have to find out about in every tile.
    """
    rows, expect = site.schedule.rows, site.spec.a.expect
    assert expect is not None

    def fetch(i: int, k: Dims) -> Value:
        if i == 0:
            expect(site.batch, (tile + 1) * rows, k[0] * rows)
        return a(i, k)

    return fetch


def _power_of_two(count: int) -> int:
    """The largest up to `count`, and at least 1."""
    return 1 << max(count, 1).bit_length() - 1


def factors_of_b(site: Site, tile: Dim, vectors: int) -> Fetch | None:
    """What the sums of each index of the first k axis are multiplied with, for each vector."""
    b = site.spec.b
    if b.factored is None or site.schedule.pack_b:
        return None
    return _vectors(site, b.factored[1], tile, vectors)


def _vectors(site: Site, load: LoadElement, tile: Dim, vectors: int) -> Fetch:
    n, lanes = site.spec.n, site.schedule.lanes
    starts = [tile * site.schedule.width + v * lanes for v in range(vectors)]
    masked = [site.lanes(n - start, n) for start in starts]
    return lambda v, k: load(site.builder, site.batch, starts[v] + site.lane.index, k, masked[v])


def is_flat(site: Site) -> bool:
    """Whether k may run as one axis, since neither operand is read where it lies."""
    spec, schedule = site.spec, site.schedule
    return (spec.a.packed is not None or schedule.pack_a) and (
        spec.b.packed is not None or schedule.pack_b
    )


def loader(operand: Operand) -> LoadElement:
    """How to read an operand that is not packed."""
    if operand.load is None:
        raise ValueError("an operand that is not packed needs a `load`")
    return operand.load


def _packed(site: Site, name: str, index: Dim, lanes: int) -> Value:
    builder = site.builder
    dtype = next(buffer.dtype for buffer in builder.kernel.buffers if buffer.name == name)
    words = site.spec.words
    if words > 1:
        value = builder.load(name, index * words, dtype, lanes * words)
        return builder.op("bitcast", value, dtype=site.spec.element, lanes=lanes)
    value = builder.load(name, index, dtype, lanes)
    return value if dtype == site.dtype else builder.op("cast", value, dtype=site.dtype)


# ---- copies into scratch --------------------------------------------------------------------


def copy_b(site: Site, depth: Depth, tile: Dim) -> None:
    """A panel of B, for all of `depth`, into scratch."""
    lanes, width = site.schedule.lanes, site.schedule.width
    if site.spec.b.contiguous_along == "k":
        _turn_b(site, depth, tile)
    elif site.spec.b.direct or site.spec.b.panelled:
        _copy_columns(site, depth, tile, [v * lanes for v in range(site.schedule.vectors)])
    else:
        # One vector for every k, so that what depends on the columns alone is computed once.
        left = minimum(width, site.spec.n - tile * width)
        with site.builder.loop(0, ceildiv(left, lanes), prefix="v") as vector:
            _copy_columns(site, depth, tile, [vector.index * lanes])


def _copy_columns(site: Site, depth: Depth, tile: Dim, columns: list[Dim]) -> None:
    spec, width = site.spec, site.schedule.width
    load = loader(spec.b)
    starts = [tile * width + column for column in columns]
    masked = [site.lanes(spec.n - start, spec.n) for start in starts]
    first = site.scratch.b - depth.start * depth.inner * width

    def copy(k: Dims) -> None:
        offset = first + depth.number(k) * width
        for column, start, lane in zip(columns, starts, masked, strict=True):
            value = load(site.builder, site.batch, start + site.lane.index, k, lane)
            site.write(offset + column, value)

    visit_each_k(site.builder, depth, copy)


def _turn_b(site: Site, depth: Depth, tile: Dim) -> None:
    """Square blocks, vectors along k of neighbouring columns, are turned round in registers.

    A block at the end of the last k axis fills rows of the panel that are written after it, or are
    beyond the last one.
    """
    spec, schedule = site.spec, site.schedule
    width, lanes = schedule.width, schedule.lanes
    load = loader(spec.b)
    groups = ceildiv(minimum(width, spec.n - tile * width), lanes)
    single = len(depth.axes) == 1
    stop, size = (depth.stop, depth.stop - depth.start) if single else (depth.axes[-1],) * 2
    first = site.scratch.b - depth.start * depth.inner * width

    def copy(k: Dims, _: list[Value]) -> list[Value]:
        lane = site.lanes(stop - k[-1], size)
        along = (*k[:-1], k[-1] + site.lane.index)
        with site.builder.loop(0, groups, prefix="v") as group:
            start = tile * width + group.index * lanes
            columns = [minimum(start + column, spec.n - 1) for column in range(lanes)]
            rows = [load(site.builder, site.batch, n, along, lane) for n in columns]
            offset = first + depth.number(k) * width + group.index * lanes
            for i, value in enumerate(transpose(site.builder, rows)):
                site.write(offset + i * width, value)
        return []

    for_each_k(site.builder, depth, [], copy, lanes)


def copy_a(site: Site) -> None:
    """The task's rows of A, for all k, into scratch."""
    spec, schedule = site.spec, site.schedule
    start = site.first_row_tile * schedule.rows
    count = minimum(schedule.row_tiles * schedule.rows, spec.m - start)
    depth = Depth.whole(spec.k)
    if spec.a.contiguous_along == "outer":
        with site.builder.loop(0, ceildiv(count, schedule.lanes), prefix="v") as vector:
            _copy_rows(site, depth, start, vector.index * schedule.lanes, count)
        return
    with site.builder.loop(0, count, prefix="m") as row:
        _copy_row(site, depth, start + row.index, row.index)


def _copy_rows(site: Site, depth: Depth, start: Dim, row: Dim, count: Dim) -> None:
    load = loader(site.spec.a)
    lane = site.lanes(count - row, count)

    def copy(k: Dims) -> None:
        value = load(site.builder, site.batch, start + row + site.lane.index, k, lane)
        site.write(_scratch_a(site, row, depth.number(k)), value)

    visit_each_k(site.builder, depth, copy)


def _copy_row(site: Site, depth: Depth, row: Dim, local: Dim) -> None:
    load = loader(site.spec.a)
    size = depth.axes[-1]

    def copy(k: Dims, _: list[Value]) -> list[Value]:
        lane = site.lanes(size - k[-1], size)
        along = (*k[:-1], k[-1] + site.lane.index)
        value = load(site.builder, site.batch, row, along, lane)
        site.write(_scratch_a(site, local, depth.number(k)), value, 1, lane.mask)
        return []

    for_each_k(site.builder, depth, [], copy, site.schedule.lanes)


def _scratch_a(site: Site, row: Dim, k: Dim) -> Dim:
    """Where scratch holds an element of A; `row` counts from the task's first."""
    layout = site.scratch
    if site.spec.a.contiguous_along == "outer":
        return layout.a + k * layout.row_stride + row
    return layout.a + row * site.spec.depth + k
