"""Convolutions, all as the graph's `conv`.

Transposed: with stride s, output o and tap k meet where o + padding = s * q + r and k = s * j + r.
So the outputs of each phase r < s are a convolution of stride 1 with every s-th tap, reversed.
Where s divides the number of taps all phases are output channels of one convolution, whose pixels
are then interleaved. Elsewhere phases differ in their taps, and each is a convolution of its own:
taps of zero would make infinities NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import product
from kernelmill.core.dtype import InputRole
from kernelmill.frontend.emitter import Emitter, NotTranslated, translates
from kernelmill.graph.ir import Input, Value, row_major
from kernelmill.graph.ops import OPS


@translates("convolution.default")
def convolution(
    e: Emitter,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    spatial = len(weight.shape) - 2
    if not x.dtype.is_float:
        raise NotTranslated(f"convolution of {x.dtype}")
    if not e.symbols.positive(weight.shape[0 if transposed else 1]):
        raise NotTranslated("convolution of no channels")  # of which ATen gives no channels
    window = _Window(
        _full(stride, spatial), _full(padding, spatial), _full(dilation, spatial), groups,
        {} if bias is None or x.dtype.compute == x.dtype else {"dtype": x.dtype.compute},
    )  # fmt: skip
    if transposed or spatial > 2:
        _require_known(e, x, weight, "transposed" if transposed else f"{spatial}d")
    if spatial > 2 and not transposed:
        _require_constant(e, weight, f"{spatial}d")
    if transposed:
        return _transposed(e, x, weight, bias, window, _sizes(e.shape[2:]))
    return _plus(e, _convolved(e, x, weight, window), bias)


def _plus(e: Emitter, result: Value, bias: Value | None) -> Value:
    if bias is None:
        return result
    return e.cast(e.add(result, e.align(e.wide(bias), len(result.shape), 1)), e.dtype)


@dataclass(frozen=True)
class _Window:
    """The geometry of a convolution along each axis. `sums` is the dtype attribute that leaves sums
    unrounded for an addition."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    sums: dict[str, Any]


def _full(amounts: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(amounts) * rank if len(amounts) == 1 else tuple(amounts)


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)


def _require_known(e: Emitter, x: Value, weight: Value, kind: str) -> None:
    known = all(isinstance(size, int) for size in (*weight.shape, *x.shape[1:]))
    if not known or product((*weight.shape, *x.shape[1:], *e.shape[2:])) == 0:
        raise NotTranslated(f"{kind} convolution of symbolic sizes or of nothing")


def _require_constant(e: Emitter, weight: Value, kind: str) -> None:
    """Leave weights that cannot be packed before the call to ATen's kernels, which are faster."""
    while weight.node is not None and (OPS[weight.node.op].transparent or weight.node.op == "cast"):
        weight = weight.node.operands[0]
    entries = (entry for entry in e.builder.graph.inputs if isinstance(entry, Input))
    if not any(entry.value is weight and entry.role != InputRole.USER for entry in entries):
        raise NotTranslated(f"{kind} convolution with a weight that changes")


_LARGE_PLANE = 25
"""Windows of three axes with more taps in a plane than this are slower here than in ATen."""


def _convolved(e: Emitter, x: Value, weight: Value, window: _Window) -> Value:
    pixels = product(weight.shape[2:]) == 1 and {*window.stride, 1} == {1}
    if len(weight.shape) > 4 and not (pixels and {*window.padding, 0} == {0}):
        depthwise = weight.shape[1] == 1 and weight.shape[0] == window.groups
        large = int(str(product(weight.shape[3:]))) > _LARGE_PLANE
        if large or (window.groups > 1 and not depthwise):
            raise NotTranslated("3d convolution with large windows or with groups")
    return e.emit(
        "conv", x, weight, stride=window.stride, padding=window.padding, dilation=window.dilation,
        groups=window.groups, **window.sums,
    )  # fmt: skip


# ---- transposed ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Phase:
    """Outputs of an axis with one remainder modulo the stride: `tap` is the first tap that they
    meet, `border` the reach of windows beyond both ends of the input."""

    tap: int
    border: tuple[int, int]


@dataclass(frozen=True)
class _Axis:
    """One axis of a transposed convolution; indices `first` to `last` of each phase are needed."""

    stride: int
    padding: int
    dilation: int
    taps: int
    size: int
    output: int

    @property
    def first(self) -> int:
        return self.padding // self.stride

    @property
    def last(self) -> int:
        return (self.output - 1 + self.padding) // self.stride

    @property
    def border(self) -> tuple[int, int]:
        """Reach of windows beyond both ends of the input; negative where they stay inside."""
        reach = self.dilation * (self.taps // self.stride - 1)
        return reach - self.first, self.last - (self.size - 1)

    def phases(self) -> list[_Phase]:
        """Return the phases in the order in which their outputs alternate. All have equally many
        outputs: those after the last are cut off."""
        count = -(-self.output // self.stride)
        found: list[_Phase] = []
        for output in range(self.stride):
            first, tap = divmod(output + self.padding, self.stride)
            reach = self.dilation * (-(-(self.taps - tap) // self.stride) - 1)
            found.append(_Phase(tap, (reach - first, first + count - self.size)))
        return found


def _transposed(
    e: Emitter,
    x: Value,
    weight: Value,
    bias: Value | None,
    window: _Window,
    outputs: tuple[int, ...],
) -> Value:
    axes = [
        _Axis(*numbers)
        for numbers in zip(
            window.stride, window.padding, window.dilation, _sizes(weight.shape[2:]),
            _sizes(x.shape[2:]), outputs, strict=True,
        )
    ]  # fmt: skip
    if any(axis.stride > 1 and axis.dilation > 1 for axis in axes):
        raise NotTranslated("transposed convolution with stride and dilation")
    if window.groups > 1 and any(axis.stride > 1 for axis in axes):
        raise NotTranslated("transposed convolution with stride and groups")
    if any(axis.stride == 1 or axis.taps % axis.stride for axis in axes):
        _require_constant(e, weight, "transposed, of stride 1 or phases with different taps,")
    weight = _turned(e, weight, window.groups)
    if any(axis.taps % axis.stride for axis in axes):
        return _phase_by_phase(e, x, weight, bias, window, axes)
    borders = [axis.border for axis in axes]
    result = _bordered(e, x, _taps(e, weight, axes), window, borders)
    return _plus(e, _interleaved(e, result, axes), bias)


def _bordered(
    e: Emitter, x: Value, taps: Value, window: _Window, borders: Sequence[tuple[int, int]]
) -> Value:
    """Emit the convolution of stride 1 whose windows reach beyond the input by `borders`."""
    inside, low, high = list[int](), [0, 0], [0, 0]
    for d, (before, after) in enumerate(borders, 2):
        x = e.slice(x, d, max(0, -before), int(str(x.shape[d])) - max(0, -after))
        inside.append(max(0, min(before, after)))
        low.append(max(0, before) - inside[-1])
        high.append(max(0, after) - inside[-1])
    plain = replace(window, stride=(1,) * len(borders), padding=tuple(inside))
    return _convolved(e, e.pad(x, low, high, 0.0), taps, plain)


_MOST_PHASES = 4
"""Most convolutions that are joined; more take longer than ATen's own kernel."""


def _phase_by_phase(
    e: Emitter,
    x: Value,
    weight: Value,
    bias: Value | None,
    window: _Window,
    axes: list[_Axis],
) -> Value:
    """Emit a convolution for each phase along each axis. `weight` is (O, I, taps...)."""
    if math.prod(axis.stride for axis in axes) > _MOST_PHASES:
        raise NotTranslated("transposed convolution of many phases with different taps")
    if any(axis.taps < axis.stride for axis in axes):
        raise NotTranslated("transposed convolution whose window is smaller than its stride")
    results: list[Value] = []
    for phases in itertools.product(*(axis.phases() for axis in axes)):
        taps = weight
        for d, (axis, phase) in enumerate(zip(axes, phases, strict=True), 2):
            taps = e.slice(taps, d, phase.tap, axis.taps, axis.stride)
        turned = e.emit("flip", taps, dims=tuple(range(2, 2 + len(axes))))
        image = _bordered(e, x, turned, window, [phase.border for phase in phases])
        results.append(_plus(e, image, bias))
    for d in reversed(range(2, 2 + len(axes))):
        results = _take_turns(e, results, d, axes[d - 2])
    return results[0]


def _take_turns(e: Emitter, images: list[Value], dim: int, axis: _Axis) -> list[Value]:
    """Join neighbouring images so that their pixels along `dim` alternate."""
    joined: list[Value] = []
    for first in range(0, len(images), axis.stride):
        turns = [e.unsqueeze(image, dim + 1) for image in images[first : first + axis.stride]]
        image = turns[0] if len(turns) == 1 else e.emit("concat", *turns, dim=dim + 1)
        *outer, places, _ = image.shape[: dim + 2]
        flat = e.reshape(image, (*outer, places * axis.stride, *image.shape[dim + 2 :]))
        joined.append(e.slice(flat, dim, 0, axis.output))
    return joined


def _turned(e: Emitter, weight: Value, groups: int) -> Value:
    """Reorder (I, O / groups, taps...) to (O, I / groups, taps...)."""
    inner, outs, *taps = weight.shape
    apart = e.reshape(weight, (groups, inner // groups, outs, *taps))
    swapped = e.permute(apart, (0, 2, 1, *range(3, len(apart.shape))))
    return e.reshape(swapped, (groups * outs, inner // groups, *taps))


def _taps(e: Emitter, weight: Value, axes: list[_Axis]) -> Value:
    """Reorder (O, I, taps...) to (O times phases, I, taps of a phase...), the last tap first."""
    rank = len(axes)
    outs, inner = weight.shape[:2]
    cut = [n for axis in axes for n in (axis.taps // axis.stride, axis.stride)]
    taps = tuple(range(2, 2 + 2 * rank, 2))
    whole = e.emit("flip", e.reshape(weight, (outs, inner, *cut)), dims=taps)
    ordered = e.permute(whole, (0, *range(3, 3 + 2 * rank, 2), 1, *taps))
    phases = product(axis.stride for axis in axes)
    return e.reshape(ordered, (outs * phases, inner, *cut[::2]))


def _interleaved(e: Emitter, x: Value, axes: list[_Axis]) -> Value:
    """Reorder (N, O times phases, pixels...) to the image in which phases' pixels alternate."""
    if all(axis.stride == 1 for axis in axes):
        return x
    rank, strides = len(axes), [axis.stride for axis in axes]
    images, channels, *places = x.shape
    # As it is computed first: storing every pixel by itself would take longer than a copy.
    kept = e.emit("layout", x, strides=row_major(x.shape))
    apart = e.reshape(kept, (images, channels // product(strides), *strides, *places))
    turns = [d for axis in range(rank) for d in (2 + rank + axis, 2 + axis)]
    sizes = [place * stride for place, stride in zip(places, strides, strict=True)]
    image = e.reshape(e.permute(apart, (0, 1, *turns)), (*apart.shape[:2], *sizes))
    for d, axis in enumerate(axes, 2):
        start = axis.padding % axis.stride
        image = e.slice(image, d, start, start + axis.output)
    return image
