"""The emit context of a convolution: the task's place, its scratch, lanes and masks."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.context import LINE_BYTES, EmitContext
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import (
    ChannelBlocks,
    ConvolutionPlace,
    DenseTiles,
    PixelTiles,
)
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution, Geometry

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
        """Offset of the padded tile in scratch."""
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
