"""A schedule: how a convolution is cut into tasks and register tiles.

A dense convolution's weights are packed as [group][panel][block][row][column][channel][out] where
the input lies channels last, [group][panel][block][channel][row][column][out] where it is planar:
a panel has `width` output channels, a block `Dense.block` input channels. Depthwise weights are
packed as [row][column][channel].
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.templates.convolution.channels_last.geometry import Geometry, Pair


@dataclass(frozen=True, kw_only=True)
class _PixelTiles:
    """What both schedules have.

    lanes, vectors   channels of a panel
    across           columns of output pixels in a register tile
    outputs          rows and columns in which output pixels are counted
    pixel            elements from one pixel of the padded tile to the next
    use_fma          the processor multiplies and adds in one instruction
    rows             output rows that one task computes
    work             estimated nanoseconds of all tasks on one core
    """

    lanes: int
    vectors: int
    across: int
    outputs: Pair
    pixel: int
    use_fma: bool
    rows: int = 1
    work: int = 0

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return self.lanes * self.vectors

    def row_blocks(self) -> int:
        """Tasks along the rows of an image."""
        return part_count(self.outputs[0], self.rows)

    def padded_size(self, geometry: Geometry) -> Pair:
        """Most rows of the padded tile, and its columns."""
        high, wide = (
            (count - 1) * geometry.stride[axis]
            + (geometry.kernel[axis] - 1) * geometry.dilation[axis]
            + 1
            for axis, count in enumerate((self.rows, self.outputs[1]))
        )
        return high, wide


@dataclass(frozen=True)
class PanelMajor:
    """A panel is computed for all tiles before the next one."""


@dataclass(frozen=True)
class TileMajor:
    """A tile is computed for all panels before the next one."""


@dataclass(frozen=True)
class ChannelBlocks:
    """Sums of all tiles grow in scratch, by so many input channels at a time, panel by panel."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"blocks of {self.size} channels")


Order = PanelMajor | TileMajor | ChannelBlocks
"""What of a task is computed before what."""


@dataclass(frozen=True, kw_only=True)
class Dense(_PixelTiles):
    """Tiles of output pixels by a panel of output channels.

    down             rows of output pixels in a register tile; several are whole rows
    padded           pixels come from a padded copy in scratch
    order            of a task's panels, tiles and input channels
    panels           panels that one task computes
    prefetch_weights those of the next panel or block are brought near meanwhile
    """

    down: int
    padded: bool
    order: Order
    panels: int = 1
    prefetch_weights: bool = False

    def __post_init__(self) -> None:
        if self.down > 1 and self.across != self.outputs[1]:
            raise ValueError(f"a tile of {self.down} rows has parts of rows")

    def block(self, geometry: Geometry) -> int:
        """Input channels that are summed before the next tile."""
        return self.order.size if isinstance(self.order, ChannelBlocks) else geometry.channels

    @property
    def tiles(self) -> int:
        """Register tiles of a task for each panel."""
        return part_count(self.rows, self.down) * part_count(self.outputs[1], self.across)

    def panel_count(self, geometry: Geometry) -> int:
        """Panels of a group."""
        return part_count(geometry.outs, self.width)

    def panel_blocks(self, geometry: Geometry) -> int:
        """Tasks along the panels of a group."""
        return part_count(self.panel_count(geometry), self.panels)

    def padded_elements(self, geometry: Geometry) -> int:
        """Elements of the padded tile, with what whole vectors write beyond its end."""
        if not self.padded:
            return 0
        high, wide = self.padded_size(geometry)
        planes = geometry.channels if geometry.planar else 1
        return planes * high * wide * self.pixel + self.lanes


@dataclass(frozen=True, kw_only=True)
class Depthwise(_PixelTiles):
    """Each channel by itself: a task has one panel of them, in a padded tile.

    unrolled  a window's rows are written out, not looped over
    """

    unrolled: bool

    @property
    def down(self) -> int:
        """Rows of output pixels in a register tile."""
        return 1

    @property
    def panels(self) -> int:
        """Panels that one task computes."""
        return 1

    def panel_count(self, geometry: Geometry) -> int:
        """Panels of all channels."""
        return part_count(geometry.groups, self.width)

    def panel_blocks(self, geometry: Geometry) -> int:
        """Tasks along the channels."""
        return self.panel_count(geometry)

    def padded_elements(self, geometry: Geometry) -> int:
        """Elements of the padded tile, with what whole vectors write beyond its end."""
        high, wide = self.padded_size(geometry)
        return high * wide * self.pixel + self.lanes


Schedule = Dense | Depthwise
