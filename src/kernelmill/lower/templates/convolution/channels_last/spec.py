"""Spec of a convolution of images with channels as the vector axis of its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.templates.convolution.channels_last.geometry import Geometry

Place = tuple[Dim, Dim]
"""A row and a column."""

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
    store of sums, a prefetch of `Geometry.adds`, and the schedule that the weights are packed
    for."""

    geometry: Geometry
    load: LoadPixel
    weights: str
    store: StorePixel
    prefetch: PrefetchPixel
    schedule: ScheduleT
