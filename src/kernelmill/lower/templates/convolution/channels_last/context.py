"""The emit context of a convolution: the task's place, its scratch and padded input tile, lanes and
masks.
"""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import part_count
from kernelmill.lower.emit.context import LINE_BYTES, EmitContext
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import (
    ChannelBlocks,
    ConvolutionPlace,
    DenseTiles,
    PixelTiles,
)
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution, Geometry
from kernelmill.lower.templates.convolution.planar.padded_tile import rows_inside

ScheduleT = TypeVar("ScheduleT", bound=PixelTiles)


@dataclass(frozen=True)
class ConvolutionContext(EmitContext, Generic[ScheduleT]):
    """A task's place: the image, the group, the block of output rows and the block of panels."""

    spec: Convolution[Any]
    schedule: ScheduleT
    image: Dim
    group: Dim
    row_block: Dim
    panel_block: Dim

    @classmethod
    def at(cls, place: ConvolutionPlace, schedule: ScheduleT) -> Self:
        """Make the context of a task."""
        return cls(
            place.builder, place.lane, place.spec.geometry.accumulate, place.spec, schedule,
            place.image, place.group, place.row_block, place.panel_block,
        )  # fmt: skip

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
        return minimum(self.schedule.outputs[0], self.first + self.schedule.rows)

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
            rows, columns = schedule.rows, schedule.outputs[1]
        return rows * columns * schedule.width


def padded_strides(context: ConvolutionContext[Any]) -> tuple[int, int, int]:
    """Return the strides of the padded tile from one channel, row and column to the next."""
    high, wide = context.schedule.padded_size(context.geometry)
    pixel = context.schedule.pixel
    return (high * wide if context.geometry.planar else 1), wide * pixel, pixel


def fill_padded_tile(context: ConvolutionContext[Any], first: Dim, vectors: Dim, size: int) -> None:
    """Read the task's rows of the channels from `first` on, of `size` in all: so many vectors of
    them, or all planes.

    What is written in whole vectors beyond a run of zeros is overwritten by what follows.
    """
    geometry, schedule = context.geometry, context.schedule
    plane, line, pixel = padded_strides(context)
    _, wide = schedule.padded_size(geometry)
    planes = geometry.channels if geometry.planar else 1
    top = context.first * geometry.stride[0] - geometry.low[0]
    moved = (context.last - context.first - 1) * geometry.stride[0]
    count = moved + (geometry.kernel[0] - 1) * geometry.dilation[0] + 1
    begin, end = rows_inside(top, count, geometry.sizes[0])
    left = min(geometry.low[1], wide)
    inside = min(geometry.sizes[1], wide - left)
    with context.counted(0, planes, prefix="c") as number:
        start = context.padded + number * plane
        if geometry.low[0] or _below(context):
            for rows in ((0, begin), (end, count)):
                with context.builder.loop(*rows, prefix="row") as row:
                    _clear(context, start + row.index * line, wide * pixel)
        with context.builder.loop(begin, end, prefix="row") as row:
            place = start + row.index * line
            _clear(context, place, left * pixel)
            at = place + left * pixel
            if geometry.planar:
                _copy_plane(context, number, top + row.index, at, inside)
            else:
                _copy_row(context, (first, vectors, size), (top + row.index, inside), at)
            _clear(context, at + inside * pixel, (wide - left - inside) * pixel)


def _below(context: ConvolutionContext[Any]) -> bool:
    """Return whether windows reach below the image."""
    geometry = context.geometry
    reach = (geometry.outputs[0] - 1) * geometry.stride[0] - geometry.low[0]
    return reach + (geometry.kernel[0] - 1) * geometry.dilation[0] >= geometry.sizes[0]


def _clear(context: ConvolutionContext[Any], start: Dim, count: int) -> None:
    if count <= 0:
        return
    lanes, zeros = context.schedule.lanes, context.zeros()
    with context.counted(0, part_count(count, lanes), prefix="v") as vector:
        context.write(start + vector * lanes, zeros)


def _copy_plane(
    context: ConvolutionContext[Any], channel: Dim, row: Dim, at: Dim, count: int
) -> None:
    lanes = context.schedule.lanes
    channel = context.group * context.geometry.channels + channel
    with context.counted(0, part_count(count, lanes), prefix="v") as vector:
        start = vector * lanes
        lane = context.masked(count - start, count)
        place = (row, start + context.lane.index)
        context.write(at + start, context.spec.load(context.image, channel, place, lane), lane.mask)


def _copy_row(
    context: ConvolutionContext[Any], channels: tuple[Dim, Dim, int], row: tuple[Dim, int], at: Dim
) -> None:
    first, vectors, size = channels
    y, columns = row
    lanes, pixel = context.schedule.lanes, context.schedule.pixel
    with (
        context.counted(0, columns, prefix="x") as x,
        context.counted(0, vectors, prefix="v") as vector,
    ):
        start = vector * lanes
        lane = context.masked(size - (first + start), size)
        channel = context.group * context.geometry.channels + first + start + context.lane.index
        value = context.spec.load(context.image, channel, (y, x), lane)
        context.write(at + x * pixel + start, value, lane.mask)
