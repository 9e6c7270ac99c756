"""Which layout a convolution has."""

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
        """The layout's name."""
        return self._layout.name

    @property
    def f32_products(self) -> str:
        """As the layout has it."""
        return self._binding.f32_products

    def packing(self, candidate: Candidate) -> Any:
        """How the layout wants constant operands."""
        return self._binding.packing(candidate)

    def pack(self, packing: Any) -> PackedWeights:
        """Constant operands, packed so."""
        return self._binding.pack(packing)

    def spec(self, emitter: Emitter, packed: PackedWeights) -> Convolution:
        """What is to be computed."""
        return Convolution(self._layout, self._binding.spec(emitter, packed))
