"""Views as strides into the memory of their base."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, linear_part, provably_nonnegative, symbols
from kernelmill.graph.ir import Value
from kernelmill.lower.elements import views
from kernelmill.lower.elements.axes import fresh_axes, is_view
from kernelmill.lower.elements.emitter import Location

Stored = Callable[[Value], "Location | None"]


@dataclass(frozen=True)
class StridedView:
    """A value as memory: its buffer, where it begins there, strides in elements of every dim."""

    location: Location
    strides: tuple[Dim, ...]
    offset: Dim


def strided_view(value: Value, stored: Stored) -> StridedView | None:
    """Return the memory of a value that is stored, or a view that strides can express; None
    otherwise. Dims of size 1 have stride 0."""
    axes, index = fresh_axes(value.shape, "x", {})
    below = value
    while (location := stored(below)) is None:
        if not is_view(below) or below.node is None:
            return None
        found = views.sources(below.node, index)
        if len(found) != 1 or found[0].conditions:
            return None
        below, index = found[0].operand, found[0].index
    address = views.address(index, location.strides, location.offset)
    steps: dict[str, Dim] = {}
    for axis in axes:
        linear = linear_part(address, axis.name)
        if linear is None or not provably_nonnegative(linear[0]):
            return None
        steps[axis.name], address = linear
    names = {axis.name for axis in axes}
    if any(names & symbols(part).keys() for part in (address, *steps.values())):
        return None
    each = iter(axes)
    strides = tuple(0 if size == 1 else steps[next(each).name] for size in value.shape)
    return StridedView(location, strides, address)


def span(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> Dim:
    """Return the number of elements from the first to the last, 0 when there are none."""
    if any(size == 0 for size in shape):
        return 0
    reach: Dim = 1
    for size, stride in zip(shape, strides, strict=True):
        reach = reach + (size - 1) * stride
    return reach
