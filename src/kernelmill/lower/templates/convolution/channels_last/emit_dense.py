"""Dense convolutions: tiles of output pixels by a panel of channels, sums kept in registers."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, floordiv, minimum, mod
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, part_count
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.microkernel import Fetch, LaneTile, Tile, with_prefetch
from kernelmill.lower.emit.packed import widen
from kernelmill.lower.templates.convolution.channels_last.context import (
    DenseContext,
    fill_padded_tile,
    padded_strides,
)
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import (
    ChannelBlocks,
    PanelMajor,
    TileMajor,
)
from kernelmill.lower.templates.convolution.channels_last.spec import Place

_LANE_PASSES = (4, 3, 2, 1)
"""Vectors of channels that a pass of the loop may take, where it takes any: the most that there is
a whole number of passes with."""


@dataclass(frozen=True)
class TilePixels:
    """A tile's output pixels: rows and columns from (row, column) on. `number` counts the tiles of
    a task."""

    row: Dim
    column: Dim
    down: int
    across: int
    number: Dim = 0


def convolve(context: DenseContext) -> None:
    """Emit all of the task's panels, each for all of its pixels."""
    geometry, schedule = context.geometry, context.schedule
    context.write(0, context.zeros())
    if schedule.padded:
        fill_padded_tile(
            context, 0, part_count(geometry.channels, schedule.lanes), geometry.channels
        )
    match schedule.order:
        case PanelMajor():
            _for_each_panel(context, lambda panel: _one_panel(context, panel))
        case TileMajor():
            first, stop = _panels(context)
            _widen(context, first, stop - first, 0)
            _for_each_tile(
                context, lambda x: _for_each_panel(context, lambda panel: _whole(context, panel, x))
            )
        case ChannelBlocks():
            _for_each_panel(context, lambda panel: _in_blocks(context, panel))


def _for_each_panel(context: DenseContext, body: Callable[[Dim], None]) -> None:
    with context.builder.loop(*_panels(context), prefix="panel") as panel:
        body(panel.index)


def _panels(context: DenseContext) -> tuple[Dim, Dim]:
    first = context.panel_block * context.schedule.panels
    count = context.schedule.panel_count(context.geometry)
    return first, minimum(count, first + context.schedule.panels)


def _one_panel(context: DenseContext, panel: Dim) -> None:
    _widen(context, panel, 1, 0)
    _for_each_tile(context, lambda pixels: _whole(context, panel, pixels))


def _whole(context: DenseContext, panel: Dim, pixels: TilePixels) -> None:
    _sum(context, panel, 0, pixels)
    _finish(context, panel, pixels)


def _in_blocks(context: DenseContext, panel: Dim) -> None:
    blocks = context.geometry.channels // context.schedule.block(context.geometry)
    _clear_sums(context)
    with context.builder.loop(0, blocks, prefix="block") as block:
        _widen(context, panel, 1, block.index)
        _for_each_tile(context, lambda pixels: _sum(context, panel, block.index, pixels))
    columns = context.schedule.outputs[2]
    with context.builder.loop(context.first, context.last, prefix="row") as row:
        _finish(context, panel, TilePixels(row.index, 0, 1, columns))


def _widen(context: DenseContext, panel: Dim, panels: Dim, block: Dim) -> None:
    """Widen panels from this one on, of one block of channels, into scratch."""
    if context.schedule.widened:
        first, count = _first_weight(context, panel, block), panels * _terms(context)
        count = count * context.schedule.width
        widen(context, context.spec.weights, first, count, context.widened)


def _first_weight(context: DenseContext, panel: Dim, block: Dim) -> Dim:
    """Return the offset of a panel's block of channels in the packed weights."""
    panels, depth = context.schedule.panel_count(context.geometry), context.geometry.depth
    first = (context.group * panels + panel) * depth + block * _terms(context)
    return first * context.schedule.width


def _terms(context: DenseContext) -> int:
    """Return the number of products of a block of channels in each sum."""
    return context.geometry.taps * context.schedule.block(context.geometry)


def _weights(context: DenseContext, panel: Dim, block: Dim) -> Callable[[Dim], Value]:
    """Return a loader of vectors of a panel's block of channels, by their place in it."""
    if not context.schedule.widened:
        first = _first_weight(context, panel, block)
        return lambda place: context.weights(first + place)
    start: Dim = context.widened
    if isinstance(context.schedule.order, TileMajor):
        start = start + (panel - _panels(context)[0]) * _terms(context) * context.schedule.width
    return lambda place: context.read(start + place, context.schedule.lanes)


def _clear_sums(context: DenseContext) -> None:
    lanes, zeros = context.schedule.lanes, context.zeros()
    elements = (context.last - context.first) * (
        context.schedule.outputs[2] * context.schedule.width
    )
    with context.builder.loop(0, floordiv(elements, lanes), prefix="v") as vector:
        context.write(context.sums + vector.index * lanes, zeros)


def _for_each_tile(context: DenseContext, body: Callable[[TilePixels], None]) -> None:
    """Emit `body` for the task's tiles: whole rows, or pieces of each row and its remainder."""
    down, across = context.schedule.down, context.schedule.across
    columns = context.schedule.outputs[2]
    if down > 1:
        even = context.schedule.outputs[1] % down == 0 and context.schedule.rows % down == 0
        count = context.last - context.first
        stop = context.last if even else context.first + floordiv(count, down) * down
        with context.builder.loop(context.first, stop, down, prefix="row") as row:
            body(TilePixels(row.index, 0, down, columns, floordiv(row.index - context.first, down)))
        if not even:
            with context.builder.loop(stop, context.last, prefix="row") as row:
                body(TilePixels(row.index, 0, 1, columns, context.schedule.tiles - 1))
        return
    full, rest = divmod(columns, across)
    with context.builder.loop(context.first, context.last, prefix="row") as row:
        before = (row.index - context.first) * (full + bool(rest))
        if full:
            with context.counted(0, full, prefix="tile") as tile:
                body(TilePixels(row.index, tile * across, 1, across, before + tile))
        if rest:
            body(TilePixels(row.index, full * across, 1, rest, before + full))


# ---- sums -----------------------------------------------------------------------------------


def _sum(context: DenseContext, panel: Dim, block: Dim, pixels: TilePixels) -> None:
    """Add one block of channels to the sums of a tile."""
    geometry, schedule = context.geometry, context.schedule
    depth, steps = _depth(context)
    channels = schedule.block(geometry)
    start, weights = _first_weight(context, panel, block), _weights(context, panel, block)
    origin = _origin(context, pixels) + block * channels * padded_strides(context)[0]

    def pixels_at(i: int, k: Dims, lanes: int) -> Value:
        """Load `lanes` channels of pixel i from k on."""
        down, across = divmod(i, pixels.across)
        if not schedule.padded:
            at = (pixels.row + down, pixels.column + across)
            channel = context.group * geometry.channels + block * channels + k[0]
            lane = None if lanes == 1 else context.lane
            first = channel if lane is None else channel + lane.index
            return context.spec.load(context.image, first, _source(context, at), lane)
        *_, line, step = padded_strides(context)
        place = origin + down * geometry.stride[1] * line + across * geometry.stride[2] * step
        for number, stride in zip(k, steps, strict=True):
            place = place + number * stride
        return context.read(place, lanes)

    fetched = _prefetched(context, start, _terms(context), pixels.number)
    if geometry.adds and not context.blocked:
        _prefetch_images(context, panel, pixels)

    def weight(v: int, k: Dims) -> Value:
        return weights(depth.number(k) * schedule.width + v * schedule.lanes)

    def ask(k: Dims) -> None:
        for place in fetched:
            context.builder.prefetch(context.spec.weights, place + depth.number(k) * schedule.lanes)

    tile_pixels = pixels.down * pixels.across
    along = depth.axes[-1]
    tile = _register_tile(context, tile_pixels, along, lambda i, k: pixels_at(i, k, schedule.lanes))
    places = [
        _slot(context, pixels, i) + v * schedule.lanes
        for i in range(tile_pixels)
        for v in range(schedule.vectors)
    ]
    line = LINE_BYTES // (schedule.lanes * geometry.accumulate.bytes)
    every = line if schedule.by_lane else 1
    # From memory even where they are zeros, so that LLVM sets no registers before their tile.
    initial = [context.read(place if context.blocked else 0, schedule.lanes) for place in places]
    sums = tile.sum_products(
        context.builder, depth, lambda i, k: pixels_at(i, k, 1),
        with_prefetch(weight, ask, every), initial,
    )  # fmt: skip
    for place, value in zip(places, sums, strict=True):
        context.write(place, value)


def _register_tile(context: DenseContext, pixels: int, along: Dim, channels: Fetch) -> Tile:
    """Return the tile of these pixels with a reader of vectors of channels; the last axis of k has
    `along`."""
    schedule, dtype = context.schedule, context.geometry.accumulate
    shape = (pixels, schedule.vectors, schedule.lanes, dtype, schedule.use_fma)
    if not schedule.by_lane:
        return Tile(*shape)
    passes = [count * schedule.lanes for count in _LANE_PASSES]
    unrolled = next((step for step in passes if mod(along, step) == 0), passes[-1])
    return LaneTile(*shape, unrolled=unrolled, along=channels)


def _prefetched(context: DenseContext, start: Dim, terms: int, number: Dim) -> list[Dim]:
    """Return the offsets of weights to prefetch while a tile is summed, one line of each with every
    product: the tile's share of the weights that the next pass over the tiles will read."""
    schedule = context.schedule
    if not schedule.prefetch_weights:
        return []
    vectors, tiles = schedule.vectors, schedule.tiles
    lines = part_count(vectors, tiles)
    share = minimum(floordiv(number, max(1, tiles // vectors)), part_count(vectors, lines) - 1)
    following = start + terms * schedule.width
    return [following + (share * lines + line) * (terms * schedule.lanes) for line in range(lines)]


def _prefetch_images(context: DenseContext, panel: Dim, pixels: TilePixels) -> None:
    """Prefetch the images that the epilogue of a tile reads while the tile is summed."""
    geometry, schedule = context.geometry, context.schedule
    with (
        context.counted(0, pixels.down, prefix="row") as down,
        context.counted(0, pixels.across, prefix="x") as across,
    ):
        at = _output(context, (pixels.row + down, pixels.column + across))
        for vector in range(schedule.vectors):
            start = panel * schedule.width + vector * schedule.lanes
            context.spec.prefetch(context.image, context.group * geometry.outs + start, at)


def _depth(context: DenseContext) -> tuple[Depth, list[Dim]]:
    """Return the loops over a block's products in the order of the packed weights, and the stride
    of each in the padded tile. Loops with even strides merge."""
    geometry, (channel, plane, line, pixel) = context.geometry, padded_strides(context)
    _, down, across = geometry.dilation
    taps = zip(geometry.kernel, (plane, down * line, across * pixel), strict=True)
    channels = (context.schedule.block(geometry), channel)
    order = (channels, *taps) if geometry.planar else (*taps, channels)
    axes: list[tuple[int, Dim]] = []
    for size, stride in order:
        if axes and size > 1 and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        elif size > 1:
            axes.append((size, stride))
    axes = axes or [(1, 1)]
    return Depth.whole(tuple(size for size, _ in axes)), [stride for _, stride in axes]


def _origin(context: DenseContext, pixels: TilePixels) -> Dim:
    """Return the offset in the padded tile where the window of the tile's first pixel begins."""
    *_, line, step = padded_strides(context)
    row = (pixels.row - context.first) * context.geometry.stride[1]
    return context.padded + row * line + pixels.column * context.geometry.stride[2] * step


def _source(context: DenseContext, at: tuple[Dim, Dim]) -> Place:
    """Return the place of an output pixel's input, where windows are pixels."""
    plane, row, column = _output(context, at)
    deep, down, across = context.geometry.stride
    return plane * deep, row * down, column * across


def _output(context: DenseContext, at: tuple[Dim, Dim]) -> Place:
    """Return the place of an output pixel of the task's plane, which may be counted in another
    way."""
    if context.schedule.outputs == context.geometry.outputs:
        return context.plane, *at
    number = at[0] * context.schedule.outputs[2] + at[1]
    plane, row, column = unravel(number, context.geometry.outputs)
    return plane, row, column


def _slot(context: DenseContext, pixels: TilePixels, i: Dim) -> Dim:
    """Return the offset of the sums of the tile's pixel `i`: a tile is pixels in a row, or rows."""
    first: Dim = 0
    if context.blocked:
        first = (pixels.row - context.first) * context.schedule.outputs[2] + pixels.column
    return context.sums + (first + i) * context.schedule.width


# ---- epilogue -------------------------------------------------------------------------------


def _finish(context: DenseContext, panel: Dim, pixels: TilePixels) -> None:
    """Hand the sums of a tile to the caller's epilogue, vector by vector of channels, so that
    values shared by all pixels are read once."""
    geometry, schedule = context.geometry, context.schedule
    outs, width, lanes = geometry.outs, schedule.width, schedule.lanes
    vectors: Dim = schedule.vectors
    if part_count(outs, lanes) % schedule.vectors:
        vectors = minimum(vectors, part_count(outs, lanes) - panel * schedule.vectors)
    its = context
    if context.spec.stores_chains and outs % width == 0:  # all vectors of a pixel at once
        lanes, vectors, its = width, 1, context.of_lanes(width)
    with context.builder.loop(0, vectors, prefix="v") as vector:
        start = panel * width + vector.index * lanes
        lane = its.masked(outs - start, outs)
        channel = context.group * outs + start + its.lane.index
        with (
            context.counted(0, pixels.down, prefix="row") as down,
            context.counted(0, pixels.across, prefix="x") as across,
        ):
            number = down * pixels.across + across
            value = context.read(_slot(context, pixels, number) + vector.index * lanes, lanes)
            at = _output(context, (pixels.row + down, pixels.column + across))
            context.spec.store(context.image, channel, at, lane, value)
