"""Size and layout of the padded input tile."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, maximum, minimum
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
