"""A schedule: how a convolution is cut into tasks and register tiles.

A dense convolution's weights are packed as [group][panel][block][row][column][channel][out] where
the input lies channels last, [group][panel][block][channel][row][column][out] where it is planar:
a panel has `width` output channels, a block `block` input channels. Depthwise weights are packed
as [row][column][channel].
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.templates.convolution.channels_last.spec import Geometry, Pair


@dataclass(frozen=True)
class Schedule:
    """What `plan_convolution` decided.

    lanes, vectors   a panel of output channels; of a depthwise convolution: channels of a task
    down, across     rows and columns of output pixels in a register tile
    outputs          rows and columns in which output pixels are counted
    padded           pixels come from a padded copy in scratch
    pixel            elements from one pixel of the padded tile to the next
    block            input channels that are summed before the next tile
    rows, panels     output rows and panels that one task computes
    tile_major       a tile is computed for all panels before the next one
    prefetch_weights those of the next panel or block are brought near meanwhile
    unrolled         a depthwise window's rows are written out, not looped over
    use_fma          the processor multiplies and adds in one instruction
    work             estimated nanoseconds of all tasks on one core
    """

    lanes: int
    vectors: int
    down: int
    across: int
    outputs: Pair
    padded: bool
    pixel: int
    block: int
    use_fma: bool
    rows: int = 1
    panels: int = 1
    tile_major: bool = False
    prefetch_weights: bool = False
    unrolled: bool = False
    work: int = 0

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return self.lanes * self.vectors

    @property
    def tiles(self) -> int:
        """Register tiles of a task for each panel."""
        return part_count(self.rows, self.down) * part_count(self.outputs[1], self.across)

    def panel_count(self, geometry: Geometry) -> int:
        """Panels of a group; of a depthwise convolution, of all channels."""
        outs = geometry.groups if geometry.depthwise else geometry.outs
        return part_count(outs, self.width)

    def row_blocks(self) -> int:
        """Tasks along the rows of an image."""
        return part_count(self.outputs[0], self.rows)

    def panel_blocks(self, geometry: Geometry) -> int:
        """Tasks along the panels of a group."""
        return part_count(self.panel_count(geometry), self.panels)

    def padded_size(self, geometry: Geometry) -> Pair:
        """Most rows of the padded tile, and its columns."""
        high, wide = (
            (count - 1) * geometry.stride[axis]
            + (geometry.kernel[axis] - 1) * geometry.dilation[axis]
            + 1
            for axis, count in enumerate((self.rows, self.outputs[1]))
        )
        return high, wide

    def padded_elements(self, geometry: Geometry) -> int:
        """Elements of the padded tile, with what whole vectors write beyond its end."""
        if not self.padded:
            return 0
        high, wide = self.padded_size(geometry)
        planes = geometry.channels if geometry.planar else 1
        return planes * high * wide * self.pixel + self.lanes
