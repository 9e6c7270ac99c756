"""The emit context of a convolution: the task's place, its scratch and padded input tile, lanes and
masks.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import part_count
from kernelmill.lower.emit.context import LINE_BYTES, EmitContext
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import (
    ChannelBlocks,
    DenseTiles,
    PixelTiles,
)
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution, Geometry
from kernelmill.lower.templates.convolution.planar.padded_tile import rows_inside

ScheduleT = TypeVar("ScheduleT", bound=PixelTiles)


@dataclass(frozen=True)
class ConvolutionContext(EmitContext, Generic[ScheduleT]):
    """A task: the image, its output plane, the group, the block of output rows and the block of
    panels."""

    spec: Convolution[Any]
    schedule: ScheduleT
    image: Dim
    plane: Dim
    group: Dim
    row_block: Dim
    panel_block: Dim

    @property
    def geometry(self) -> Geometry:
        return self.spec.geometry

    @property
    def first(self) -> Dim:
        """First output row of the task."""
        return self.row_block * self.schedule.rows

    @property
    def last(self) -> Dim:
        """End of the task's output rows."""
        return minimum(self.schedule.outputs[1], self.first + self.schedule.rows)

    @property
    def padded(self) -> int:
        """Offset of the padded tile in scratch."""
        return 0

    def scratch_bytes(self) -> int:
        """Return the bytes of scratch, at the end of which is the padded tile."""
        elements = self.padded + self.schedule.padded_elements(self.geometry)
        return elements * self.geometry.accumulate.bytes

    def weights(self, offset: Dim) -> Value:
        """Load a vector of packed weights."""
        return self.read_packed(self.spec.weights, offset, self.schedule.lanes)


class DenseContext(ConvolutionContext[DenseTiles]):
    """In scratch a vector of zeros comes first, then the sums of finished tiles, then weights that
    were widened, then the padded input tile."""

    @property
    def sums(self) -> int:
        """Offset of the sums in scratch."""
        return max(self.schedule.lanes, self._line)

    @property
    def widened(self) -> int:
        """Offset of widened weights in scratch."""
        return self.sums + part_count(self._sums_elements(), self._line) * self._line

    @property
    def padded(self) -> int:
        elements = self.schedule.widened_elements(self.geometry)
        return self.widened + -(-elements // self._line) * self._line

    @property
    def blocked(self) -> bool:
        """True if a tile is summed in several steps."""
        return isinstance(self.schedule.order, ChannelBlocks)

    @property
    def _line(self) -> int:
        return LINE_BYTES // self.geometry.accumulate.bytes

    def _sums_elements(self) -> int:
        schedule = self.schedule
        rows, columns = schedule.down, schedule.across
        if self.blocked:
            rows, columns = schedule.rows, schedule.outputs[2]
        return rows * columns * schedule.width


def padded_strides(context: ConvolutionContext[Any]) -> tuple[int, int, int, int]:
    """Return the strides of the padded tile from one channel, plane, row and column to the next."""
    deep, high, wide = context.schedule.padded_size(context.geometry)
    line = wide * context.schedule.pixel
    channel = deep * high * wide if context.geometry.planar else 1
    return channel, high * line, line, context.schedule.pixel


def fill_padded_tile(context: ConvolutionContext[Any], first: Dim, vectors: Dim, size: int) -> None:
    """Read the task's rows of the channels from `first` on, of `size` in all: so many vectors of
    them, or all of a planar image.

    What is written in whole vectors beyond a run of zeros is overwritten by what follows.
    """
    geometry, deep = context.geometry, context.geometry.kernel[0]
    channel, plane, _, _ = padded_strides(context)
    front = context.plane * geometry.stride[0] - geometry.low[0]
    begin, end = rows_inside(front, deep, geometry.sizes[0], geometry.dilation[0])
    with context.counted(0, geometry.channels if geometry.planar else 1, prefix="c") as number:
        start = context.padded + number * channel
        channels = (number, 1, 1) if geometry.planar else (first, vectors, size)
        if _beyond(context, 0):
            for planes in ((0, begin), (end, deep)):
                with context.builder.loop(*planes, prefix="plane") as outside:
                    _clear(context, start + outside.index * plane, plane)
        with context.counted(begin, end, prefix="plane") as tap:
            _fill_plane(context, channels, front + tap * geometry.dilation[0], start + tap * plane)


def _fill_plane(
    context: ConvolutionContext[Any], channels: tuple[Dim, Dim, int], plane: Dim, start: Dim
) -> None:
    geometry = context.geometry
    _, _, line, pixel = padded_strides(context)
    _, _, wide = context.schedule.padded_size(geometry)
    top = context.first * geometry.stride[1] - geometry.low[1]
    moved = (context.last - context.first - 1) * geometry.stride[1]
    count = moved + (geometry.kernel[1] - 1) * geometry.dilation[1] + 1
    begin, end = rows_inside(top, count, geometry.sizes[1])
    left = min(geometry.low[2], wide)
    inside = min(geometry.sizes[2], wide - left)
    if _beyond(context, 1):
        for rows in ((0, begin), (end, count)):
            with context.builder.loop(*rows, prefix="row") as row:
                _clear(context, start + row.index * line, wide * pixel)
    with context.builder.loop(begin, end, prefix="row") as row:
        place = start + row.index * line
        _clear(context, place, left * pixel)
        at = place + left * pixel
        _copy_row(context, channels, (plane, top + row.index), inside, at)
        _clear(context, at + inside * pixel, (wide - left - inside) * pixel)


def _beyond(context: ConvolutionContext[Any], axis: int) -> bool:
    """Return whether windows reach beyond the image along an axis."""
    geometry = context.geometry
    low, window = geometry.low[axis], (geometry.kernel[axis] - 1) * geometry.dilation[axis]
    last = (geometry.outputs[axis] - 1) * geometry.stride[axis] - low
    return low > 0 or last + window >= geometry.sizes[axis]


def _clear(context: ConvolutionContext[Any], start: Dim, count: int) -> None:
    if count <= 0:
        return
    lanes, zeros = context.schedule.lanes, context.zeros()
    with context.counted(0, part_count(count, lanes), prefix="v") as vector:
        context.write(start + vector * lanes, zeros)


def _copy_row(
    context: ConvolutionContext[Any], channels: tuple[Dim, Dim, int], row: tuple[Dim, Dim],
    columns: int, at: Dim,
) -> None:  # fmt: skip
    """Copy a row of pixels in vectors of channels, of a planar image one channel in vectors of
    columns."""
    (first, vectors, size), lanes = channels, context.schedule.lanes
    planar, before = context.geometry.planar, context.group * context.geometry.channels
    beside, count = (1, part_count(columns, lanes)) if planar else (columns, vectors)
    start, size = (0, columns) if planar else (first, size)
    with (
        context.counted(0, beside, prefix="x") as x,
        context.counted(0, count, prefix="v") as vector,
    ):
        lane = context.masked(size - (start + vector * lanes), size)
        along = start + vector * lanes + context.lane.index
        channel, column = (first, along) if planar else (along, x)
        value = context.spec.load(context.image, before + channel, (*row, column), lane)
        place = at + x * context.schedule.pixel + vector * lanes
        context.write(place, value, lane.mask)
