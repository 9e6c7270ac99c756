"""Convolutions of any number of axes: a template for each layout of images and results.

The layout with tiles of pixels by channels: a convolution as a product on a tile unit.

Rows are output pixels of all images; k goes over the taps of a window and the channels of each,
which are contiguous. The product copies windows into tiles as it needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kernelmill.core.dim import Dim, ceildiv, mod, product
from kernelmill.core.dtype import I8, I32
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.strided import strided_view
from kernelmill.lower.elements.views import Index, unravel
from kernelmill.lower.emit.tiles import WORDS
from kernelmill.lower.schedule.template import GroupContext, Template
from kernelmill.lower.templates.convolution.channels_last.layout import (
    ChannelsLast,
    ChannelsLastBinding,
    convolves_last,
)
from kernelmill.lower.templates.convolution.planar.layout import Pixels, Planar
from kernelmill.lower.templates.convolution.planar.spec import windows
from kernelmill.lower.templates.matmul.bind import ContractionBinding
from kernelmill.lower.templates.matmul.spec import Places, Roles
from kernelmill.lower.templates.matmul.template import MatmulTemplate
from kernelmill.lower.weights.dot_operand import unit_of_product
from kernelmill.lower.weights.panel_views import padded


class PixelTiles(MatmulTemplate):
    """Convolutions with constant weights, whose image and results are stored channels last: all of
    bytes but depthwise ones, and of bf16 those of one group where tiles are worth it. A word, or a
    tile's row, is channels of one tap."""

    name, layout = "convolution", "tiles"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is such a convolution."""
        if not convolves_last(context):
            return False
        geometry = ChannelsLastBinding(context).geometry
        if geometry.groups > 1 or geometry.accumulate == I32:
            return geometry.accumulate == I32 and not geometry.depthwise
        return not geometry.planar and self.bind(context).unit.on_tiles

    def bind(self, context: GroupContext) -> TiledConvolution:
        """Bind the group as a product."""
        return TiledConvolution(context)


class TiledConvolution(ContractionBinding):
    """A group around a convolution, as a product of words."""

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context, lambda node, _: tap_roles(node, self.unit, self._in_place))
        self.each = self.seed.attrs["groups"] != 1

    @property
    def _in_place(self) -> bool:
        """True if pixels outside of the image are masked: a mask of words costs nothing, one of
        bytes more than a branch."""
        image = strided_view(self.seed.operands[0], self.context.stored)
        return image is not None and self.unit.on_tiles

    @cached_property
    def unit(self) -> DotUnit:
        """Unit that multiplies words; one of a single number where these are not worth it."""
        x, weight = self.seed.operands
        machine, (images, outs, *sizes) = self.context.machine, self.seed.result.shape
        channels, rows = weight.shape[1], product((images, *sizes))
        unit = unit_of_product(x.dtype, machine, rows, outs, product(weight.shape[1:]))
        if unit.on_tiles and mod(channels, WORDS * unit.group) == 0:
            return unit
        return machine.dot_unit(I8) if x.dtype == I8 else MULTIPLY_ADD


def tap_roles(node: Node, unit: DotUnit, in_place: bool) -> Roles:
    """Return the roles of a convolution: k is taps by channels, on tiles as one axis, else with
    zeros up to whole words of channels. Several groups are the batch; the last word of one may have
    channels of the next, times zeros. An image that is read `in_place` is read where windows reach,
    which are zeros beyond it."""
    x, weight = node.operands
    outs, channels, *kernel = weight.shape
    images, outputs, groups = x.shape[0], node.result.shape[2:], node.attrs["groups"]
    assert isinstance(groups, int)
    outs, batch = outs // groups, (groups,) if groups > 1 else ()
    together = isinstance(images, int) or groups > 1
    inner = (*kernel, channels)
    more = 0 if unit.on_tiles else ceildiv(channels, unit.group) * unit.group - channels

    def pixel(bi: Dims, mi: Dim) -> Index:
        return unravel(mi, (images, *outputs)) if together else (bi[0], *unravel(mi, outputs))

    def of_image(bi: Dims, mi: Dim, ki: Dims) -> Index:
        image, *place = pixel(bi, mi)
        *tap, channel = unravel(ki[0], inner) if unit.on_tiles else (*unravel(ki[0], kernel), ki[1])
        channel = channel + (bi[0] * channels if groups > 1 else 0)
        if in_place:
            return (image, channel, *_reached(node, place, tap))
        return (image, channel, *place, *tap)

    def within(bi: Dims, mi: Dim, ki: Dims) -> Places:
        _, _, *place = of_image(bi, mi, ki)
        return list(zip(place, x.shape[2:], strict=True)) if in_place else ()

    def of_result(bi: Dims, mi: Dim, ni: Dim) -> Index:
        image, *place = pixel(bi, mi)
        return (image, ni + (bi[0] * outs if groups > 1 else 0), *place)

    a = x if in_place else windows(node)
    a = padded(GraphBuilder("widened"), a, (a.shape[0], a.shape[1] + more, *a.shape[2:]))
    k = (product(inner),) if unit.on_tiles else (product(kernel), channels + more)
    return Roles(
        batch if together else (images,),
        product((images, *outputs)) if together else product(outputs),
        outs, k, a, _by_taps(weight, (*batch, outs), more, unit.on_tiles),
        of_image, lambda bi, ni, ki: (*bi[: len(batch)], ni, *ki), of_result, within,
    )  # fmt: skip


def _reached(node: Node, place: Sequence[Dim], tap: Sequence[Dim]) -> Index:
    """Return the place in the image of a tap of the window for an output pixel."""
    steps = (node.attrs[name] for name in ("stride", "dilation", "padding"))
    numbers = zip(*(step for step in steps if isinstance(step, tuple)), strict=True)
    return tuple(
        at * stride + number * dilation - low
        for at, number, (stride, dilation, low) in zip(place, tap, numbers, strict=True)
    )


def _by_taps(weight: Value, outs: Dims, more: Dim, flat: bool) -> Value:
    """Return the weights as (*outs, taps, channels) with extra zero channels, or `flat` as (*outs,
    taps by channels)."""
    builder = GraphBuilder("taps")
    channels, *kernel = weight.shape[1:]
    last = builder.emit("permute", weight, dims=(0, *range(2, len(weight.shape)), 1))
    if flat:
        return builder.emit("reshape", last, shape=(*outs, product((*kernel, channels))))
    taps = builder.emit("reshape", last, shape=(*outs, product(kernel), channels))
    return padded(builder, taps, (*outs, product(kernel), channels + more))


LAYOUTS: tuple[Template[Any, Any], ...] = (PixelTiles(), ChannelsLast(), Planar(), Pixels())
"""In order of preference; the last one accepts every convolution."""
