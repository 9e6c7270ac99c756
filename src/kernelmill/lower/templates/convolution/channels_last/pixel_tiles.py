"""The fields of schedules: the division of a convolution into tasks and register tiles.

A schedule is a class in its own file, with its choice (`plan`), its other candidates, the layout of
its weights and its code. `layout.py` lists both.

A dense convolution's weights are packed as [group][panel][block][tap][channel][out] where the input
lies channels last, [group][panel][block][channel][tap][out] where it is planar: a panel has `width`
output channels, a block `DenseTiles.block` input channels. Depthwise weights are packed as
[tap][channel].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import prod
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.axes import Dims, part_count
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.packed import READINGS, Rows
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution, Geometry, Sizes


@dataclass(frozen=True, kw_only=True)
class PixelTiles(ABC):
    """The base of all schedules of convolutions along channels.

    lanes, vectors   channels of a panel
    down             rows of output pixels in a register tile
    across           columns of output pixels in a register tile
    outputs          planes, rows and columns in which output pixels are counted
    pixel            elements from one pixel of the padded tile to the next
    use_fma          the processor multiplies and adds in one instruction
    rows, panels     output rows, and panels, that one task computes
    work             estimated nanoseconds of all tasks on one core
    """

    lanes: int
    vectors: int
    across: int
    outputs: Sizes
    pixel: int
    use_fma: bool
    down: int = 1
    rows: int = 1
    panels: int = 1
    work: int = 0

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return self.lanes * self.vectors

    def row_blocks(self) -> int:
        """Return the number of tasks along the rows of an image."""
        return part_count(self.outputs[1], self.rows)

    def groups(self, geometry: Geometry) -> int:
        """Return the number of groups of channels, each with tasks of its own."""
        return geometry.groups

    @abstractmethod
    def panel_count(self, geometry: Geometry) -> int:
        """Return the number of panels of a group."""

    @abstractmethod
    def most_panels(self, geometry: Geometry) -> int:
        """Return the most panels that one task may compute."""

    def panel_blocks(self, geometry: Geometry) -> int:
        """Return the number of tasks along the panels of a group."""
        return part_count(self.panel_count(geometry), self.panels)

    def padded_elements(self, geometry: Geometry) -> int:
        """Return the elements of the padded tile, with those written beyond its end."""
        channels = geometry.channels if geometry.planar else 1
        return channels * prod(self.padded_size(geometry)) * self.pixel + self.lanes

    @abstractmethod
    def candidates(self, geometry: Geometry) -> Iterator[Candidate]:
        """Yield other register tiles that are worth trying, the likelier first."""

    @abstractmethod
    def packed(self, node: Node, geometry: Geometry) -> tuple[Value, Rows | None]:
        """Return the weights of a node as a view in the order of this file's head, and the rows
        that it copies, if it does."""

    @abstractmethod
    def emit(self, builder: KernelBuilder, lane: Lane, spec: Convolution[Any], task: Dims) -> None:
        """Set the kernel's scratch, and write one task: the one of an image, its output plane, a
        group, a block of output rows and a block of panels."""

    def widenings(self, geometry: Geometry) -> int:
        """Return the number of vectors of weights that a task widens."""
        return 0

    def padded_size(self, geometry: Geometry) -> Sizes:
        """Return the planes of the padded tile, which are a window's, its most rows, and its
        columns."""
        high, wide = (
            (count - 1) * geometry.stride[axis]
            + (geometry.kernel[axis] - 1) * geometry.dilation[axis]
            + 1
            for axis, count in ((1, self.rows), (2, self.outputs[2]))
        )
        return geometry.kernel[0], high, wide


@dataclass(frozen=True)
class PanelMajor:
    """A panel is computed for all tiles before the next one."""


@dataclass(frozen=True)
class TileMajor:
    """A tile is computed for all panels before the next one."""


@dataclass(frozen=True)
class ChannelBlocks:
    """Sums of all tiles grow in scratch, by so many input channels at a time, panel by panel."""

    block: int

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"blocks of {self.block} channels")


Order = PanelMajor | TileMajor | ChannelBlocks
"""The order of the parts of a task."""


@dataclass(frozen=True, kw_only=True)
class DenseTiles(PixelTiles):
    """Tiles of output pixels by a panel of output channels.

    down             several rows in a register tile are whole rows
    padded           pixels come from a padded copy in scratch
    order            of a task's panels, tiles and input channels
    prefetch_weights those of the next panel or block are brought near meanwhile
    by_lane          a multiply-add takes one lane of a vector of a pixel's channels
    widened          weights are of a half type, and a task widens them in scratch, where its tiles
                     read them: those of all its panels tile by tile, else of a panel or block
    """

    padded: bool
    order: Order
    prefetch_weights: bool = False
    by_lane: bool = False
    widened: bool = False

    def __post_init__(self) -> None:
        if self.down > 1 and self.across != self.outputs[2]:
            raise ValueError(f"a tile of {self.down} rows has parts of rows")

    def block(self, geometry: Geometry) -> int:
        """Return the input channels that are summed before the next tile."""
        return self.order.block if isinstance(self.order, ChannelBlocks) else geometry.channels

    @property
    def tiles(self) -> int:
        """Register tiles of a task for each panel."""
        return part_count(self.rows, self.down) * part_count(self.outputs[2], self.across)

    def panel_count(self, geometry: Geometry) -> int:
        return part_count(geometry.outs, self.width)

    def most_panels(self, geometry: Geometry) -> int:
        return self.panel_count(geometry)

    def widenings(self, geometry: Geometry) -> int:
        """Return the vectors of weights that a task widens: for each tile, or once, with two
        instructions more for their way through scratch."""
        if not (self.by_lane and geometry.half):
            return 0
        return min(self.tiles, READINGS) * self.panels * geometry.depth * self.vectors

    def widened_elements(self, geometry: Geometry) -> int:
        """Return the number of weights in scratch at a time."""
        if not self.widened:
            return 0
        panels = self.panels if isinstance(self.order, TileMajor) else 1
        return panels * geometry.taps * self.block(geometry) * self.width

    def padded_elements(self, geometry: Geometry) -> int:
        return super().padded_elements(geometry) if self.padded else 0
