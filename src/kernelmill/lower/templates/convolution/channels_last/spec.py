"""Spec of a convolution with channels as the vector axis of its results: its sizes, and callbacks.

Images have three spatial axes, the first ones of size 1 if need be. Where windows are single pixels
that follow one another, output pixels may be counted in any other rows and columns: see
`Geometry.folded`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Generic, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane

Pair = tuple[int, int]
"""A value for rows and one for columns."""

Sizes = tuple[int, int, int]
"""Of planes, rows and columns."""


@dataclass(frozen=True)
class Geometry:
    """All that a schedule depends on.

    images            their number
    groups            with `channels` input and `outs` output channels each
    sizes, outputs    of an input and an output image
    kernel, stride, dilation, low   of the window, by axis; `low` is the padding before the image
    planar            neighbours in memory are columns of the input, not channels
    direct            reading an element is no more than a load
    accumulate        the dtype of the sums
    adds              the epilogue reads images as large as the result, such as a residual
    half              the weights are of a half type
    """

    images: Dim
    groups: int
    channels: int
    outs: int
    sizes: Sizes
    outputs: Sizes
    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    low: Sizes
    planar: bool
    direct: bool
    accumulate: DType
    adds: bool = False
    half: bool = False

    @property
    def taps(self) -> int:
        """Number of pixels of a window."""
        return prod(self.kernel)

    @property
    def depth(self) -> int:
        """Number of products in each sum."""
        return self.channels * self.taps

    @property
    def depthwise(self) -> bool:
        """True if every channel is convolved by itself."""
        return self.groups > 1 and self.channels == self.outs == 1

    @property
    def pointwise(self) -> bool:
        """True if windows are single pixels, all of them inside the image."""
        return self.taps == 1 and self.low == (0, 0, 0)

    @property
    def folded(self) -> bool:
        """True if output pixels are input pixels in the same order, so that rows do not matter."""
        return self.pointwise and self.stride == (1, 1, 1)


Place = tuple[Dim, Dim, Dim]
"""A plane, a row and a column."""

LoadPixel = Callable[[Dim, Dim, Place, Lane | None], Value]
"""`load(image, channel, place, lane)`: one element, or the vector along the lane's symbol, which
occurs in the channel or in the column. In the accumulator's dtype."""

PrefetchPixel = Callable[[Dim, Dim, Place], None]
"""`prefetch(image, channel, place)`: brings near what the epilogue reads for this pixel of the
result, from this channel on."""

StorePixel = Callable[[Dim, Dim, Place, Lane, Value], None]
"""`store(image, channel, place, lane, sums)`: the epilogue and the store of one vector of channels
of an output pixel."""


ScheduleT = TypeVar("ScheduleT")


@dataclass(frozen=True)
class Convolution(Generic[ScheduleT]):
    """A geometry with its operands: the source of pixels, the buffer of the packed weights, the
    store of sums, a prefetch of `Geometry.adds`, the schedule that the weights are packed for, and
    whether the store computes functions that are chains of operations (see `has_chains`)."""

    geometry: Geometry
    load: LoadPixel
    weights: str
    store: StorePixel
    prefetch: PrefetchPixel
    schedule: ScheduleT
    stores_chains: bool
