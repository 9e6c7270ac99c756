"""Spec of a convolution whose vectors run along the pixels of an image, and its roles as a
contraction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def in_planes(node: Node) -> Node:
    """Return a convolution as one of two axes: a single axis is a row; of three, the taps of the
    first become input channels, and its positions images."""
    x, weight = node.operands
    if len(weight.shape) == 4:
        return node
    builder, attrs = GraphBuilder("planes", node.origin), dict(node.attrs)
    (outs, channels, *kernel), (images, inner, *sizes) = weight.shape, x.shape
    if len(kernel) == 3:
        x = builder.emit("permute", windows(node, 1), dims=(0, 2, 1, 5, 3, 4))
        images, inner, channels = images * x.shape[1], inner * kernel[0], channels * kernel[0]
    x = builder.emit("reshape", x, shape=(images, inner, *(1, *sizes)[-2:]))
    weight = builder.emit("reshape", weight, shape=(outs, channels, *(1, *kernel)[-2:]))
    for name, missing in (("stride", 1), ("padding", 0), ("dilation", 1)):
        steps = attrs[name]
        assert isinstance(steps, tuple)
        attrs[name] = (missing, *steps)[-2:]
    made = builder.emit("conv", x, weight, **attrs).node
    assert made is not None
    return made


def of_planes(node: Node, index: Index) -> Index:
    """Return the place in a convolution's result that has this index in the one `in_planes`."""
    images, _, *sizes = node.result.shape
    image, *planes = unravel(index[0], (images, *sizes[:-2]))
    return (image, index[1], *planes, *index[2:][-len(sizes) :])


def window_roles(node: Node) -> Roles:
    """Return the roles of a convolution as a product: columns are the output pixels of an image."""
    x, weight = node.operands
    groups, outputs = node.attrs["groups"], node.result.shape[2:]
    assert isinstance(groups, int)
    per_group, channels = weight.shape[0] // groups, weight.shape[1]
    return Roles(
        (x.shape[0], groups), per_group, product(outputs), weight.shape[1:], weight, windows(node),
        lambda bi, mi, ki: (bi[1] * per_group + mi, *ki),
        lambda bi, ni, ki: (bi[0], bi[1] * channels + ki[0], *unravel(ni, outputs), *ki[1:]),
        lambda bi, mi, ni: (bi[0], bi[1] * per_group + mi, *unravel(ni, outputs)),
    )  # fmt: skip


def slides(node: Node) -> bool:
    """Return whether a node is a convolution whose windows are worth a padded input tile."""
    x, weight = node.operands
    same = node.result.shape[2:] == x.shape[2:]
    return not (same and all(size == 1 for size in weight.shape[2:]))


def windows(node: Node, axes: int | None = None) -> Value:
    """Return the input of a convolution as windows along its first axes, all of them by default:
    (N, C, out..., kernel...)."""
    x, weight = node.operands
    steps: list[Any] = [node.attrs[name] for name in ("stride", "dilation", "padding")]
    stride, dilation, padding = (step[:axes] for step in steps)
    size = weight.shape[2:][:axes]
    return GraphBuilder("window").emit(
        "window", x, dims=tuple(range(2, 2 + len(size))), size=size, stride=stride,
        dilation=dilation, low=padding, high=padding, value=0.0,
    )  # fmt: skip
