"""The padded input tile: rows of an image in scratch, with zeros around them.

The tile of `channels_last/context.py` has another layout, and shares only the test for rows inside
of the image (`rows_inside`). There a pixel is a run of channels, sizes are known, and a row is
copied whole. Here a vector is neighbouring pixels, of sizes that may be symbolic, so edges are
masked. For windows with a stride, columns are stored by their remainder, so that vectors of windows
are vectors of the tile.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, maximum, minimum, mod
from kernelmill.core.dtype import I32, I64
from kernelmill.kernel.ir import SCRATCH, Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.templates.convolution.planar.spec import Window


@dataclass(frozen=True)
class TileShape:
    """Row-major [channel][row][phase][column]: a row's pixels are dealt out to as many phases as
    the window moves at a time, so that windows side by side read pixels side by side.

    Only every `row_step`-th row of the image is kept, and only the first `phases` of `stride`,
    where the window looks at no others. `slack` elements follow the last column, since windows are
    read in whole vectors.
    """

    channels: Dim
    rows: Dim
    row_step: int
    phases: int
    columns: Dim
    slack: int

    @property
    def row_stride(self) -> Dim:
        """Number of elements from one row to the next."""
        return self.phases * self.columns

    @property
    def channel_stride(self) -> Dim:
        """Number of elements from one channel to the next."""
        return self.rows * self.row_stride

    @property
    def elements(self) -> Dim:
        """Number of elements of the tile."""
        return self.channels * self.channel_stride + self.slack


def tile_shape(window: Window, channels: Dim, positions: Dim, lanes: int, slack: int) -> TileShape:
    """Return the tile for these numbers of channels and of neighbouring window positions."""
    (height, width), (high, wide) = window.outputs, window.kernel
    spanned = minimum(height, floordiv(positions + width - 2, maximum(width, 1)) + 1)
    row_step = window.stride[0] if _only_multiples(window, 0) else 1
    moved = (spanned - 1) * window.stride[0] + (high - 1) * window.dilation[0]
    reach = width + floordiv((wide - 1) * window.dilation[1], window.stride[1])
    return TileShape(
        channels,
        maximum(floordiv(moved, row_step) + 1, 0),
        row_step,
        phases=1 if _only_multiples(window, 1) else window.stride[1],
        columns=ceildiv(reach, lanes) * lanes,
        slack=slack,
    )


def _only_multiples(window: Window, axis: int) -> bool:
    """Return whether the window skips all pixels between those of its first tap along this axis."""
    return window.kernel[axis] == 1 or window.dilation[axis] % window.stride[axis] == 0


def fill_tile(
    context: EmitContext, window: Window, shape: TileShape, batch: Dims, start: Dim, depth: Depth,
    positions: tuple[Dim, Dim],
) -> PaddedTile:  # fmt: skip
    """Emit the tile for the windows at positions [begin, end)."""
    begin, end = positions
    width = window.outputs[1]
    first, last = floordiv(begin, width), floordiv(end - 1, width)
    tile = PaddedTile(context, window, shape, batch, start, depth, first, last)
    tile.fill()
    return tile


def rows_inside(top: Dim, count: Dim, height: Dim, step: int = 1) -> tuple[Dim, Dim]:
    """Return the tile's rows [begin, end) that are in the image: of `count` rows, of which the
    first is row `top` of the image and each is `step` rows below the one before."""
    begin = minimum(count, maximum(0, ceildiv(0 - top, step)))
    return begin, maximum(begin, minimum(count, ceildiv(height - top, step)))


@dataclass(frozen=True)
class PaddedTile:
    """A tile in scratch at `start`, for `depth`'s channels and output rows [first, last]."""

    context: EmitContext
    window: Window
    shape: TileShape
    batch: Dims
    start: Dim
    depth: Depth
    first: Dim
    last: Dim

    def place(self, channel: Dim, row: Dim, down: Dim, across: Dim) -> Dim:
        """Return the offset of pixels `down` and `across` from the start of output row `row`."""
        window, shape = self.window, self.shape
        down = (row - self.first) * window.stride[0] + down
        column = mod(across, window.stride[1]) * shape.columns + floordiv(across, window.stride[1])
        return self._row(channel, floordiv(down, shape.row_step)) + column

    def vector(self, place: Dim) -> Value:
        """Load a vector of the tile."""
        return self.context.read(place, self.context.lane.count)

    def _row(self, channel: Dim, local: Dim) -> Dim:
        shape = self.shape
        offset = (channel - self.depth.start) * shape.channel_stride + local * shape.row_stride
        return self.start + offset

    # ---- filling ----------------------------------------------------------------------------

    def fill(self) -> None:
        """Read the image into the tile."""
        window, shape, high = self.window, self.shape, self.window.kernel[0]
        top = self.first * window.stride[0] - window.low[0]
        moved = (self.last - self.first) * window.stride[0] + (high - 1) * window.dilation[0]
        count = floordiv(moved, shape.row_step) + 1
        begin, end = rows_inside(top, count, window.sizes[0], shape.row_step)
        self._clear(0, begin)
        self._clear(end, count)
        lanes = self.context.lane.count
        with self.context.builder.loop(0, floordiv(shape.columns, lanes), prefix="v") as vector:
            column = vector.index * lanes
            if window.stride[1] == 2 and self.context.dtype.bytes == 4:
                self._fill_both(column, top, (begin, end))
                return
            for phase in range(shape.phases):
                first = column * window.stride[1] + phase
                lane = self._inside(first, window.stride[1])
                with self._rows(top, begin, end) as (channel, local, row):
                    value = self._pixels(channel, row, first, window.stride[1], lane)
                    self._keep(channel, local, phase, column, value)

    def _fill_both(self, column: Dim, top: Dim, rows: tuple[Dim, Dim]) -> None:
        """Fill the tile for windows that move by 2: vectors of even and of odd pixels."""
        context, lanes = self.context, self.context.lane.count
        starts = (column * 2, column * 2 + lanes)
        inside = [self._inside(start, 1) for start in starts]
        aside = self.start + self.shape.elements - self.shape.slack
        with self._rows(top, *rows) as (channel, local, row):
            for start, lane, place in zip(starts, inside, (0, lanes), strict=True):
                context.write(aside + place, self._pixels(channel, row, start, 1, lane))
            halves = [
                context.builder.load(SCRATCH, floordiv(aside + place, 2), I64, lanes // 2)
                for place in (0, lanes)
            ]
            for phase in range(self.shape.phases):
                if phase:
                    halves = [context.builder.op("shr", half, 32) for half in halves]
                low = [context.builder.op("cast", half, dtype=I32) for half in halves]
                value = context.builder.op(
                    "bitcast", context.builder.op("concat2", *low), dtype=context.dtype
                )
                self._keep(channel, local, phase, column, value)

    def _pixels(self, channel: Dim, row: Dim, first: Dim, step: int, lane: Lane) -> Value:
        """Read pixels `first`, `first + step`, ... of a padded row, zero outside the image."""
        context, mask = self.context, lane.mask
        assert mask is not None
        x = first + lane.index * step - self.window.low[1]
        value = self.window.load(context.builder, self.batch, channel, (row, x), lane)
        return context.builder.op("select", mask, value, context.zeros())

    def _keep(self, channel: Dim, local: Dim, phase: int, column: Dim, value: Value) -> None:
        place = self._row(channel, local) + phase * self.shape.columns + column
        self.context.write(place, value)

    def _inside(self, first: Dim, step: int) -> Lane:
        """Return the lane masked to the pixels of a padded row that the image has."""
        builder, window, lane = self.context.builder, self.window, self.context.lane
        stop = builder.index(ceildiv(window.sizes[1] + window.low[1] - first, step))
        mask = builder.op("lane_mask", stop, lanes=lane.count)
        if window.low[1] > 0:
            start = builder.index(ceildiv(window.low[1] - first, step))
            outside = builder.op("lane_mask", start, lanes=lane.count)
            mask = builder.op("and", mask, builder.op("not", outside))
        return Lane(lane.symbol, lane.count, mask)

    def _clear(self, begin: Dim, end: Dim) -> None:
        context, lanes = self.context, self.context.lane.count
        zeros = context.zeros()
        with (
            self._rows(0, begin, end) as (channel, local, _),
            context.builder.loop(0, floordiv(self.shape.row_stride, lanes), prefix="v") as vector,
        ):
            context.write(self._row(channel, local) + vector.index * lanes, zeros)

    @contextmanager
    def _rows(self, top: Dim, begin: Dim, end: Dim) -> Generator[tuple[Dim, Dim, Dim]]:
        """Loop over channels and rows [begin, end) of the tile; yield also the image's row."""
        builder = self.context.builder
        with (
            builder.loop(self.depth.start, self.depth.stop, prefix="c") as channel,
            builder.loop(begin, end, prefix="row") as local,
        ):
            yield channel.index, local.index, top + local.index * self.shape.row_step
