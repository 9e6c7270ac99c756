"""Panels of windows, copied from the padded input tile."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, floordiv, maximum
from kernelmill.lower.elements.sizes import Dims, part_count, size_hint
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.templates.convolution.planar.padded_tile import (
    PaddedTile,
    TileShape,
    fill_tile,
    tile_shape,
)
from kernelmill.lower.templates.convolution.planar.spec import Window
from kernelmill.lower.templates.matmul.spec import FillPanel


@dataclass(frozen=True)
class WindowPanels:
    """A contraction's `PanelSource`: keeps a padded input tile, and copies from it the positions of
    a panel, one run of them for each output row."""

    window: Window

    def run(self, lanes: int, vectors: int) -> int:
        """Return the vectors that hold any run of a panel's positions in one row of output."""
        width = self.window.outputs[1]
        return vectors if not isinstance(width, int) else min(vectors, part_count(width, lanes))

    def row_operations(self, width: int, run: int) -> int:
        """Return the vector operations for runs of `width` positions, of one channel and tap."""
        return 5 * (part_count(width, size_hint(self.window.outputs[1])) + 1) * run

    def kept(self, depth: Dim, columns: Dim, lanes: int, run: int) -> KeptTile:
        """Return the tile for so many channels and positions."""
        slack = max(run, 2) * lanes
        return KeptTile(self.window, tile_shape(self.window, depth, columns, lanes, slack), run)


@dataclass(frozen=True)
class KeptTile:
    """The padded input tile that panels are copied from, in runs of so many vectors."""

    window: Window
    shape: TileShape
    run: int

    @property
    def elements(self) -> Dim:
        """All of the tile."""
        return self.shape.elements

    def prepare(
        self, context: EmitContext, batch: Dims, start: Dim, depth: Depth, begin: Dim, end: Dim
    ) -> FillPanel:
        """Emit the tile for the windows at positions [begin, end)."""
        tile = fill_tile(context, self.window, self.shape, batch, start, depth, (begin, end))

        def fill(begin: Dim, end: Dim, start: Dim, stride: int) -> None:
            _copy_windows(tile, self.run, begin, end, start, stride)

        return fill


def _copy_windows(
    tile: PaddedTile, run: int, begin: Dim, end: Dim, start: Dim, stride: int
) -> None:
    """Copy the positions [begin, end) of a panel, one run of them for each output row.

    Runs are copied in whole vectors, each overwriting what the one before it wrote too much; the
    panel's rows are long enough for the last.
    """
    context, window, depth = tile.context, tile.window, tile.depth
    builder, lanes, width = context.builder, context.lane.count, window.outputs[1]
    high, wide = window.kernel
    first, last = floordiv(begin, width), floordiv(end - 1, width)
    with builder.loop(first, last + 1, prefix="row") as row:
        skipped = maximum(0, begin - row.index * width)
        target = start + row.index * width + skipped - begin
        with (
            builder.loop(depth.start, depth.stop, prefix="c") as c,
            builder.loop(0, high, prefix="i") as i,
            builder.loop(0, wide, prefix="j", unroll=isinstance(wide, int)) as j,
        ):
            k = (c.index, i.index, j.index)
            down, across = i.index * window.dilation[0], j.index * window.dilation[1]
            source = tile.place(c.index, row.index, down, across) + skipped
            panel_row = target + depth.number(k) * stride
            for v in range(run):
                context.write(panel_row + v * lanes, tile.vector(source + v * lanes))
