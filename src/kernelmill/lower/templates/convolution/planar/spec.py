"""Spec of a convolution whose vectors run along the pixels of an image, and its roles as a
contraction.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, product
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index, unravel
from kernelmill.lower.templates.matmul.spec import Contraction, Roles

LoadImage = Callable[[KernelBuilder, Dims, Dim, tuple[Dim, Dim], Lane], Register]
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


def window_roles(node: Node) -> Roles:
    """Return the roles of a convolution with windows from a padded input tile. B is indexed at the
    window's first tap where the window neither moves by more than one nor is padded."""
    x, weight = node.operands
    groups, outputs = node.attrs["groups"], node.result.shape[2:]
    assert isinstance(groups, int)
    per_group, channels = weight.shape[0] // groups, weight.shape[1]
    missing = (1,) * (4 - len(weight.shape))
    return Roles(
        (x.shape[0], groups), per_group, product(outputs),
        (channels, *missing, *weight.shape[2:]), weight, x,
        lambda bi, mi, ki: (bi[1] * per_group + mi, ki[0], *ki[1 + len(missing) :]),
        lambda bi, ni, ki: (bi[0], bi[1] * channels + ki[0], *unravel(ni, outputs)),
        lambda bi, mi, ni: (bi[0], bi[1] * per_group + mi, *unravel(ni, outputs)),
    )  # fmt: skip


def pixel_roles(node: Node, _: Dim) -> Roles:
    """Return the roles of any convolution as a product: columns are the output pixels of one row of
    the image, or of the whole image where rows are short or the input's pixels are read one after
    another."""
    x, weight = node.operands
    groups = node.attrs["groups"]
    assert isinstance(groups, int)
    outputs = node.result.shape[2:]
    per_group, channels = weight.shape[0] // groups, weight.shape[1]
    plain = all(size == 1 for size in weight.shape[2:]) and outputs == x.shape[2:]
    flat = plain or len(outputs) == 1 or _short(outputs[-1])
    split = 0 if flat else len(outputs) - 1
    rows = outputs[:split]
    columns = product(outputs[split:])

    def place(bi: Dims, ni: Dim) -> Index:
        return (*bi[2:], *unravel(ni, outputs[split:]))

    return Roles(
        (x.shape[0], groups, *rows), per_group, columns, (channels, *weight.shape[2:]),
        weight, windows(node),
        lambda bi, mi, ki: (bi[1] * per_group + mi, *ki),
        lambda bi, ni, ki: (bi[0], bi[1] * channels + ki[0], *place(bi, ni), *ki[1:]),
        lambda bi, mi, ni: (bi[0], bi[1] * per_group + mi, *place(bi, ni)),
    )  # fmt: skip


def slides(node: Node) -> bool:
    """Return whether a node is a convolution of one or two axes whose windows are worth a padded
    input tile."""
    if len(node.result.shape) > 4:
        return False
    x, weight = node.operands
    same = node.result.shape[2:] == x.shape[2:]
    return not (same and all(size == 1 for size in weight.shape[2:]))


def _short(width: Dim) -> bool:
    """Return whether vectors along one image row would waste more lanes than gathering costs."""
    return isinstance(width, int) and width < 24 and width % 16 != 0


def windows(node: Node) -> Value:
    """Return the input of a convolution as windows: (N, C, out..., kernel...)."""
    x, weight = node.operands
    builder = GraphBuilder("window")
    dims = tuple(range(2, len(x.shape)))
    padding = node.attrs["padding"]
    return builder.emit(
        "window", x, dims=dims, size=weight.shape[2:], stride=node.attrs["stride"],
        dilation=node.attrs["dilation"], low=padding, high=padding, value=0.0,
    )  # fmt: skip
