"""Dense convolutions: tiles of output pixels by a panel of channels, sums kept in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelmill.core.dim import Dim, floordiv, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims, part_count
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.microkernel import Tile
from kernelmill.lower.templates.convolution.site import Site
from kernelmill.lower.templates.convolution.strip import fill_strip, strip_strides


@dataclass(frozen=True)
class Pixels:
    """A tile's output pixels: rows and columns from (row, column) on. `number` counts the tiles of
    a task."""

    row: Dim
    column: Dim
    down: int
    across: int
    number: Dim = 0


def convolve(site: Site) -> None:
    """All of the task's panels, each for all of its pixels."""
    geometry, schedule = site.geometry, site.schedule
    site.write(0, site.zeros())
    if schedule.strip:
        fill_strip(site, 0, part_count(geometry.channels, schedule.lanes), geometry.channels)
    if schedule.tile_major:
        _for_each_tile(
            site, lambda pixels: _for_each_panel(site, lambda p: _whole(site, p, pixels))
        )
    elif site.blocked:
        _for_each_panel(site, lambda panel: _in_blocks(site, panel))
    else:
        _for_each_panel(site, lambda panel: _for_each_tile(site, lambda x: _whole(site, panel, x)))


def _for_each_panel(site: Site, body: Callable[[Dim], None]) -> None:
    first = site.panel_block * site.schedule.panels
    stop = minimum(site.schedule.panel_count(site.geometry), first + site.schedule.panels)
    with site.builder.loop(first, stop, prefix="panel") as panel:
        body(panel.index)


def _whole(site: Site, panel: Dim, pixels: Pixels) -> None:
    _sum(site, panel, 0, pixels)
    _finish(site, panel, pixels)


def _in_blocks(site: Site, panel: Dim) -> None:
    blocks = site.geometry.channels // site.schedule.block
    _clear_sums(site)
    with site.builder.loop(0, blocks, prefix="block") as block:
        _for_each_tile(site, lambda pixels: _sum(site, panel, block.index, pixels))
    columns = site.schedule.outputs[1]
    with site.builder.loop(site.first, site.last, prefix="row") as row:
        _finish(site, panel, Pixels(row.index, 0, 1, columns))


def _clear_sums(site: Site) -> None:
    lanes, zeros = site.schedule.lanes, site.zeros()
    elements = (site.last - site.first) * (site.schedule.outputs[1] * site.schedule.width)
    with site.builder.loop(0, floordiv(elements, lanes), prefix="v") as vector:
        site.write(site.sums + vector.index * lanes, zeros)


def _for_each_tile(site: Site, body: Callable[[Pixels], None]) -> None:
    """The task's tiles: of whole rows, or pieces of each row and what is left of it."""
    down, across = site.schedule.down, site.schedule.across
    columns = site.schedule.outputs[1]
    if down > 1:
        even = site.schedule.outputs[0] % down == 0 and site.schedule.rows % down == 0
        count = site.last - site.first
        stop = site.last if even else site.first + floordiv(count, down) * down
        with site.builder.loop(site.first, stop, down, prefix="row") as row:
            body(Pixels(row.index, 0, down, columns, floordiv(row.index - site.first, down)))
        if not even:
            with site.builder.loop(stop, site.last, prefix="row") as row:
                body(Pixels(row.index, 0, 1, columns, site.schedule.tiles - 1))
        return
    full, rest = divmod(columns, across)
    with site.builder.loop(site.first, site.last, prefix="row") as row:
        before = (row.index - site.first) * (full + bool(rest))
        if full:
            with site.counted(0, full, prefix="tile") as tile:
                body(Pixels(row.index, tile * across, 1, across, before + tile))
        if rest:
            body(Pixels(row.index, full * across, 1, rest, before + full))


# ---- sums -----------------------------------------------------------------------------------


def _sum(site: Site, panel: Dim, block: Dim, pixels: Pixels) -> None:
    """Add one block of channels to the sums of a tile."""
    geometry, schedule = site.geometry, site.schedule
    depth, steps = _depth(site)
    terms = geometry.taps * schedule.block
    start = (site.group * schedule.panel_count(geometry) + panel) * geometry.depth
    start = (start + block * terms) * schedule.width
    origin = _origin(site, pixels) + block * schedule.block * strip_strides(site)[0]

    def pixel(i: int, k: Dims) -> Value:
        down, across = divmod(i, pixels.across)
        if not schedule.strip:
            at = (pixels.row + down, pixels.column + across)
            channel = site.group * geometry.channels + block * schedule.block + k[0]
            return site.spec.load(*_source(site, channel, at), None)
        _, line, step = strip_strides(site)
        place = origin + down * geometry.stride[0] * line + across * geometry.stride[1] * step
        for number, stride in zip(k, steps, strict=True):
            place = place + number * stride
        return site.read(place)

    ahead = _ahead(site, start, terms, pixels.number)
    if geometry.adds and not site.blocked:
        _expect(site, panel, pixels)

    def weight(v: int, k: Dims) -> Value:
        if v == 0:
            for place in ahead:
                site.builder.prefetch(site.spec.weights, place + depth.number(k) * schedule.lanes)
        return site.weights(start + depth.number(k) * schedule.width + v * schedule.lanes)

    count = pixels.down * pixels.across
    tile = Tile(count, schedule.vectors, schedule.lanes, geometry.accumulate, schedule.fused)
    places = [
        _slot(site, pixels, i) + v * schedule.lanes
        for i in range(count)
        for v in range(schedule.vectors)
    ]
    # From memory even where they are zeros, so that LLVM sets no registers before their tile.
    initial = [site.read(place if site.blocked else 0, schedule.lanes) for place in places]
    sums = tile.sum_products(site.builder, depth, pixel, weight, initial)
    for place, value in zip(places, sums, strict=True):
        site.write(place, value)


def _ahead(site: Site, start: Dim, terms: int, number: Dim) -> list[Dim]:
    """Where weights begin that are to be brought near while a tile is summed, a line of each with
    every product: the tile's share of what the next pass over the tiles will read."""
    schedule = site.schedule
    if not schedule.ahead:
        return []
    vectors, tiles = schedule.vectors, schedule.tiles
    lines = part_count(vectors, tiles)
    share = minimum(floordiv(number, max(1, tiles // vectors)), part_count(vectors, lines) - 1)
    following = start + terms * schedule.width
    return [following + (share * lines + line) * (terms * schedule.lanes) for line in range(lines)]


def _expect(site: Site, panel: Dim, pixels: Pixels) -> None:
    """Have what the epilogue of a tile reads brought near while the tile is summed."""
    geometry, schedule = site.geometry, site.schedule
    with (
        site.counted(0, pixels.down, prefix="row") as down,
        site.counted(0, pixels.across, prefix="x") as across,
    ):
        at = _output(site, (pixels.row + down, pixels.column + across))
        for vector in range(schedule.vectors):
            start = panel * schedule.width + vector * schedule.lanes
            site.spec.expect(site.image, site.group * geometry.outs + start, at)


def _depth(site: Site) -> tuple[Depth, list[Dim]]:
    """The loops over a block's products in the order of the packed weights, and for each what it
    moves in the strip. Loops that move evenly are one."""
    geometry, (plane, line, pixel) = site.geometry, strip_strides(site)
    rows = (geometry.kernel[0], geometry.dilation[0] * line)
    columns = (geometry.kernel[1], geometry.dilation[1] * pixel)
    channels = (site.schedule.block, plane)
    order = (channels, rows, columns) if geometry.planar else (rows, columns, channels)
    axes: list[tuple[int, Dim]] = []
    for size, stride in order:
        if axes and size > 1 and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        elif size > 1:
            axes.append((size, stride))
    axes = axes or [(1, 1)]
    return Depth.whole(tuple(size for size, _ in axes)), [stride for _, stride in axes]


def _origin(site: Site, pixels: Pixels) -> Dim:
    """Where in the strip the window of the tile's first pixel begins."""
    _, line, step = strip_strides(site)
    row = (pixels.row - site.first) * site.geometry.stride[0]
    return site.strip + row * line + pixels.column * site.geometry.stride[1] * step


def _source(site: Site, channel: Dim, at: tuple[Dim, Dim]) -> tuple[Dim, Dim, tuple[Dim, Dim]]:
    """Image, channel and place of the input pixel for an output pixel, where windows are pixels."""
    row, column = _output(site, at)
    return site.image, channel, (row * site.geometry.stride[0], column * site.geometry.stride[1])


def _output(site: Site, at: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
    """The output pixel's row and column, which may be counted in another way."""
    if site.schedule.outputs == site.geometry.outputs:
        return at
    number = at[0] * site.schedule.outputs[1] + at[1]
    row, column = unravel(number, site.geometry.outputs)
    return row, column


def _slot(site: Site, pixels: Pixels, i: Dim) -> Dim:
    """Where the sums of the tile's pixel number `i` are: a tile is pixels in a row, or rows."""
    first: Dim = 0
    if site.blocked:
        first = (pixels.row - site.first) * site.schedule.outputs[1] + pixels.column
    return site.sums + (first + i) * site.schedule.width


# ---- epilogue -------------------------------------------------------------------------------


def _finish(site: Site, panel: Dim, pixels: Pixels) -> None:
    """Hand the sums of a tile to the caller's epilogue, vector by vector of channels, so that what
    is the same for all pixels is read once."""
    geometry, schedule = site.geometry, site.schedule
    outs, width, lanes = geometry.outs, schedule.width, schedule.lanes
    vectors: Dim = schedule.vectors
    if part_count(outs, lanes) % schedule.vectors:
        vectors = minimum(vectors, part_count(outs, lanes) - panel * schedule.vectors)
    with site.builder.loop(0, vectors, prefix="v") as vector:
        start = panel * width + vector.index * lanes
        lane = site.lanes(outs - start, outs)
        channel = site.group * outs + start + site.lane.index
        with (
            site.counted(0, pixels.down, prefix="row") as down,
            site.counted(0, pixels.across, prefix="x") as across,
        ):
            number = down * pixels.across + across
            value = site.read(_slot(site, pixels, number) + vector.index * lanes, lanes)
            at = _output(site, (pixels.row + down, pixels.column + across))
            site.spec.store(site.image, channel, at, lane, value)
