"""Spec of a convolution whose vectors run along the pixels of an image."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.templates.matmul.spec import Contraction

LoadImage = Callable[[KernelBuilder, Dims, Dim, tuple[Dim, Dim], Lane], Value]
"""`load(builder, batch, channel, position, lane)`: elements of an image along its last axis, where
the lane's symbol occurs times the window's stride. All lanes that the mask leaves are inside."""


@dataclass(frozen=True)
class Window:
    """A window over an image with two spatial axes, the first of size 1 if need be.

    Its element at k = (channel, i, j) and position n = x * outputs[1] + y is the image's at
    (channel, x * stride[0] + i * dilation[0] - low[0], y * stride[1] + j * dilation[1] - low[1]),
    and zero where that is outside of `sizes`.

    It says where elements are, of images whose sizes may be symbolic; how many there are is the
    contraction's to say. `channels_last.spec.Geometry` is known sizes and channels too, all
    that a schedule of that layout is planned by.
    """

    load: LoadImage
    sizes: tuple[Dim, Dim]
    outputs: tuple[Dim, Dim]
    kernel: tuple[Dim, Dim]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    low: tuple[int, int]


@dataclass(frozen=True)
class PlanarConvolution:
    """A contraction of the weights, A, with a window, B, whose `source` fills panels from it. Rows
    are output channels, columns are positions, the batch is (image, group)."""

    contraction: Contraction
    window: Window
