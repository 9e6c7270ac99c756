"""The layout with tiles of pixels by channels: a convolution as a product on a unit for tiles.

Rows are output pixels, of all images; along k are the taps of a window, and of each its channels,
which lie side by side. Windows are copied into tiles as the product goes along.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, product
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.elements.strided import strided_view
from kernelmill.lower.elements.views import Index, unravel
from kernelmill.lower.emit.tiles import WORDS
from kernelmill.lower.schedule.template import GroupContext
from kernelmill.lower.templates.convolution.channels_last.bind import (
    ChannelsLastBinding,
    convolves_last,
)
from kernelmill.lower.templates.convolution.planar.roles import windows
from kernelmill.lower.templates.matmul.bind import ContractionBinding
from kernelmill.lower.templates.matmul.roles import Places, Roles
from kernelmill.lower.templates.matmul.template import MatmulTemplate
from kernelmill.lower.weights.dot_operand import unit_of_product


@dataclass(frozen=True)
class PixelTiles(MatmulTemplate):
    """Convolutions with constant weights and one group, whose image and results lie channels last,
    where tiles are worth it. A tile's row is channels of one tap."""

    name: str = "tiles"

    def matches(self, context: GroupContext) -> bool:
        """Whether this is such a convolution."""
        if not convolves_last(context):
            return False
        geometry = ChannelsLastBinding(context).geometry
        if geometry.groups > 1 or geometry.planar:
            return False
        unit = self.bind(context).unit
        return unit.on_tiles and geometry.channels % (WORDS * unit.group) == 0

    def bind(self, context: GroupContext) -> TiledConvolution:
        """The product."""
        assert context.group.seed is not None
        image = strided_view(context.group.seed.operands[0], context.stored)
        return TiledConvolution(context, partial(tap_roles, in_place=image is not None))


class TiledConvolution(ContractionBinding):
    """A group around a convolution, as a product on tiles."""

    @cached_property
    def unit(self) -> DotUnit:
        """What multiplies tiles; one that does not where these are not worth it."""
        roles = self.whole
        unit = unit_of_product(
            roles.a.dtype, self.context.machine, roles.m, roles.n, product(roles.k)
        )
        return unit if unit.on_tiles else MULTIPLY_ADD


def tap_roles(node: Node, _: Dim, in_place: bool) -> Roles:
    """The roles of a convolution of one group: k is taps by channels, as one axis. An image that is
    read `in_place` is read where windows reach, which are zeros beyond it."""
    x, weight = node.operands
    outs, channels, *kernel = weight.shape
    images, outputs = x.shape[0], node.result.shape[2:]
    together = isinstance(images, int)
    inner = (*kernel, channels)

    def pixel(bi: Dims, mi: Dim) -> Index:
        return unravel(mi, (images, *outputs)) if together else (bi[0], *unravel(mi, outputs))

    def of_image(bi: Dims, mi: Dim, ki: Dims) -> Index:
        image, *place = pixel(bi, mi)
        *tap, channel = unravel(ki[0], inner)
        if in_place:
            return (image, channel, *_reached(node, place, tap))
        return (image, channel, *place, *tap)

    def within(bi: Dims, mi: Dim, ki: Dims) -> Places:
        _, _, *place = of_image(bi, mi, ki)
        return list(zip(place, x.shape[2:], strict=True)) if in_place else ()

    def of_result(bi: Dims, mi: Dim, ni: Dim) -> Index:
        image, *place = pixel(bi, mi)
        return (image, ni, *place)

    return Roles(
        () if together else (images,),
        product((images, *outputs)) if together else product(outputs),
        outs, (product(inner),), x if in_place else windows(node), _by_taps(weight),
        of_image, lambda bi, ni, ki: (ni, ki[0]), of_result, within,
    )  # fmt: skip


def _reached(node: Node, place: Sequence[Dim], tap: Sequence[Dim]) -> Index:
    """The place in the image of a tap of the window for an output pixel."""
    steps = (node.attrs[name] for name in ("stride", "dilation", "padding"))
    numbers = zip(*(step for step in steps if isinstance(step, tuple)), strict=True)
    return tuple(
        at * stride + number * dilation - low
        for at, number, (stride, dilation, low) in zip(place, tap, numbers, strict=True)
    )


def _by_taps(weight: Value) -> Value:
    """The weights as (outs, taps by channels)."""
    builder = GraphBuilder("taps")
    outs, channels, *kernel = weight.shape
    last = builder.emit("permute", weight, dims=(0, *range(2, len(weight.shape)), 1))
    return builder.emit("reshape", last, shape=(outs, product((*kernel, channels))))
