"""Where in a convolution code is being emitted: the task's place, its scratch, lanes and masks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelmill.core.dim import Dim, minimum
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.templates.convolution.schedule import Schedule
from kernelmill.lower.templates.convolution.spec import Convolution, Geometry

_LINE_ELEMENTS = 16


@dataclass(frozen=True)
class Site:
    """A task's place: the image, the group, the block of output rows and the block of panels.

    In scratch a vector of zeros comes first, then the sums of finished tiles, then the strip.
    """

    builder: KernelBuilder
    spec: Convolution
    schedule: Schedule
    lane: Lane
    image: Dim
    group: Dim
    row_block: Dim
    panel_block: Dim

    @property
    def geometry(self) -> Geometry:
        return self.spec.geometry

    @property
    def first(self) -> Dim:
        """The first output row."""
        return self.row_block * self.schedule.rows

    @property
    def last(self) -> Dim:
        """One more than the last output row."""
        return minimum(self.schedule.outputs[0], self.first + self.schedule.rows)

    @property
    def sums(self) -> int:
        """Where the sums are."""
        return max(self.schedule.lanes, _LINE_ELEMENTS)

    @property
    def strip(self) -> int:
        """Where the strip is."""
        return self.sums + part_count(self._sums_elements(), _LINE_ELEMENTS) * _LINE_ELEMENTS

    @property
    def blocked(self) -> bool:
        """Whether a tile is summed in several steps."""
        return self.schedule.block < self.geometry.channels

    def scratch_bytes(self) -> int:
        """All of it."""
        elements = self.strip + self.schedule.strip_elements(self.geometry)
        return elements * self.geometry.accumulate.bytes

    def _sums_elements(self) -> int:
        schedule = self.schedule
        if self.geometry.depthwise:
            return 0
        rows, columns = schedule.down, schedule.across
        if self.blocked:
            rows, columns = schedule.rows, schedule.outputs[1]
        return rows * columns * schedule.width

    # ---- memory ------------------------------------------------------------------------------

    def zeros(self) -> Value:
        """A vector of zeros."""
        dtype, lanes = self.geometry.accumulate, self.schedule.lanes
        return self.builder.op("splat", 0.0 if dtype.is_float else 0, dtype=dtype, lanes=lanes)

    def read(self, offset: Dim, lanes: int = 1) -> Value:
        """Sums or pixels from scratch."""
        return self.builder.load(SCRATCH, offset, self.geometry.accumulate, lanes)

    def write(self, offset: Dim, value: Value, mask: Value | None = None) -> None:
        """Sums or pixels into scratch."""
        self.builder.store(SCRATCH, offset, value, mask)

    def weights(self, offset: Dim) -> Value:
        """A vector of packed weights."""
        name, dtype = self.spec.weights, self.geometry.accumulate
        kept = next(buffer.dtype for buffer in self.builder.kernel.buffers if buffer.name == name)
        value = self.builder.load(name, offset, kept, self.schedule.lanes)
        return value if kept == dtype else self.builder.op("cast", value, dtype=dtype)

    def lanes(self, left: Dim, size: int) -> Lane:
        """The lane where `left` of `size` elements are still to come."""
        count = self.lane.count
        if size % count == 0:
            return self.lane
        mask = self.builder.op("lane_mask", self.builder.index(left), lanes=count)
        return Lane(self.lane.symbol, count, mask)

    @contextmanager
    def counted(self, start: Dim, stop: Dim, step: int = 1, prefix: str = "i") -> Generator[Dim]:
        """A loop, or nothing but the index where there is one pass."""
        if isinstance(start, int) and isinstance(stop, int) and stop - start <= step:
            yield start
            return
        with self.builder.loop(start, stop, step, prefix=prefix) as loop:
            yield loop.index
