"""Binding of a convolution by the first layout that takes it."""

from __future__ import annotations

from typing import Any

from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import Binding, GroupContext, Template
from kernelmill.lower.templates.convolution.channels_last.layout import ChannelsLast
from kernelmill.lower.templates.convolution.planar.layout import Pixels, Planar
from kernelmill.lower.templates.convolution.spec import Convolution
from kernelmill.lower.templates.convolution.tiles import PixelTiles

LAYOUTS: tuple[Template[Any, Any], ...] = (PixelTiles(), ChannelsLast(), Planar(), Pixels())
"""In the order in which they are asked; the last takes every convolution."""


class ConvolutionBinding:
    """A group around a convolution, bound by the first layout that takes it."""

    def __init__(self, context: GroupContext) -> None:
        self._layout = next(layout for layout in LAYOUTS if layout.matches(context))
        self._binding: Binding[Any] = self._layout.bind(context)

    @property
    def layout(self) -> str:
        """Name of the layout."""
        return self._layout.name

    @property
    def f32_products(self) -> str:
        """Method of computing f32 products, as the layout has it."""
        return self._binding.f32_products

    def packing(self, candidate: Candidate) -> Any:
        """Return the layout's packing of constant operands."""
        return self._binding.packing(candidate)

    def pack(self, packing: Any) -> PackedWeights:
        """Pack the constant operands in that way."""
        return self._binding.pack(packing)

    def spec(self, emitter: Emitter, packed: PackedWeights) -> Convolution:
        """Return the spec in the terms of the layout."""
        return Convolution(self._layout, self._binding.spec(emitter, packed))
