"""Pooling as a reduction over sliding windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernelmill.core.dim import Dim, maximum, product
from kernelmill.core.dtype import I64, DType
from kernelmill.frontend.aten.sources import spread
from kernelmill.frontend.emitter import Emitter, NotTranslated, translates
from kernelmill.graph.ir import Combine, Value

_LOWEST = {"i64": -(2**63), "i32": -(2**31), "i16": -(2**15), "i8": -128, "u8": 0}


class _Windows:
    """The geometry of a pooling over the last dims: sizes per pooled dim."""

    def __init__(
        self,
        e: Emitter,
        x: Value,
        size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil: bool,
        count: int,
    ) -> None:
        self.count, self.ceil = count, ceil
        self.size = _all(size, count)
        self.stride = _all(stride, count) if stride else self.size
        self.padding = _all(padding, count)
        self.dilation = _all(dilation, count)
        self.input = x.shape[-count:]
        self.output = e.shape[-count:]

    def view(self, e: Emitter, x: Value, value: bool | int | float) -> Value:
        """Return x with its windows as `count` new last dims, padded with `value`."""
        rank = len(x.shape)
        high = tuple(self._high(d) for d in range(self.count))
        found = e.emit(
            "window", x, dims=tuple(range(rank - self.count, rank)), size=self.size,
            stride=self.stride, dilation=self.dilation, low=self.padding, high=high, value=value,
        )  # fmt: skip
        return e.reshape(found, (*x.shape[: -self.count], *self.output, *self.size))

    def _high(self, d: int) -> Dim:
        """Return the padding at the end, enough for the last window of `ceil_mode`."""
        reach = self.dilation[d] * (self.size[d] - 1) + 1
        needed = (self.output[d] - 1) * self.stride[d] + reach - self.input[d] - self.padding[d]
        return maximum(needed, self.padding[d]) if self.ceil else self.padding[d]


def _all(amounts: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(amounts) * count if len(amounts) == 1 else tuple(amounts)


def _lowest(dtype: DType) -> int | float:
    return -math.inf if dtype.is_float else _LOWEST[dtype.name]


# ---- maximum ----------------------------------------------------------------------------------


def _max_pool(count: int) -> Callable[..., tuple[Value, Value | None]]:
    """Return the translator for windows of `count` dims."""

    def max_pool(
        e: Emitter,
        x: Value,
        size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Value, Value | None]:
        return _maxima(e, _Windows(e, x, size, stride, padding, dilation, ceil_mode, count), x)

    return max_pool


def _maxima(e: Emitter, windows: _Windows, x: Value) -> tuple[Value, Value | None]:
    """Return the largest of each window, and its position if it is used."""
    count = windows.count
    view = windows.view(e, x, _lowest(x.dtype))
    rank = len(view.shape)
    # Of zeros of both signs eager takes the first.
    result = e.emit("reduce_max", view, dims=tuple(range(rank - count, rank)), ordered=True)
    if not e.used[1]:
        return result, None
    flat = e.reshape(view, (*view.shape[:-count], product(windows.size)))
    inside = e.emit("argmax", flat, dim=rank - count)
    return result, _input_position(e, windows, inside)


def _input_position(e: Emitter, windows: _Windows, inside: Value) -> Value:
    """Return the position in the flattened pooled dims of x, from the position inside the window.

    In a window of nothing but the lowest value a padded place comes first; eager then has the first
    place that is in x.
    """
    shape, count = inside.shape, windows.count
    total: Value | None = None
    for d in range(count):
        later = product(windows.size[d + 1 :])
        offset = e.pointwise("floordiv", inside, e.like(later, inside)) if later != 1 else inside
        if d:
            offset = e.pointwise("mod", offset, e.like(windows.size[d], offset))
        start = e.iota(shape, len(shape) - count + d)
        place = e.add(e.mul(start, windows.stride[d]), e.mul(offset, windows.dilation[d]))
        place = e.sub(place, windows.padding[d])
        if windows.padding[d] and windows.dilation[d] > 1:
            inside_x = e.pointwise("mod", place, e.like(windows.dilation[d], place))
            place = e.where(e.compare("lt", place, 0), inside_x, place)
        place = e.clamp(place, 0, windows.input[d] - 1)
        total = place if total is None else e.add(e.mul(total, windows.input[d]), place)
    assert total is not None
    return total


translates("max_pool2d_with_indices.default")(_max_pool(2))
translates("max_pool3d_with_indices.default")(_max_pool(3))


@translates("max_pool2d_with_indices_backward.default")
def max_pool2d_backward(
    e: Emitter,
    grad: Value,
    x: Value,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Value,
) -> Value:
    lead = x.shape[:-2]
    plane = (*lead, x.shape[-2] * x.shape[-1])
    places = (*lead, grad.shape[-2] * grad.shape[-1])
    summed = e.emit(
        "scatter", e.constant(0, x.dtype, plane), e.reshape(indices, places),
        e.reshape(grad, places), dim=len(plane) - 1, mode=Combine.ADD,
    )  # fmt: skip
    return e.reshape(summed, x.shape)


# ---- average ----------------------------------------------------------------------------------


def _avg_pool(count: int) -> Callable[..., Value]:
    def avg_pool(
        e: Emitter,
        x: Value,
        size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        windows = _Windows(e, x, size, stride, padding, (1,), ceil_mode, count)
        return _means(e, windows, x, count_include_pad, divisor_override)

    return avg_pool


def _means(
    e: Emitter, windows: _Windows, x: Value, include_padding: bool, divisor: int | None
) -> Value:
    """Return sums of windows over the divisor, or over the windows' numbers of elements."""
    count = windows.count
    if not x.dtype.is_float:
        raise NotTranslated(f"average pooling of {x.dtype}")
    wide = e.wide(x)
    view = windows.view(e, wide, 0.0)
    rank = len(view.shape)
    total = e.reduce("reduce_sum", view, range(rank - count, rank))
    if divisor is not None:
        return e.cast(e.div(total, divisor), x.dtype)
    return e.cast(e.div(total, _elements(e, windows, total, include_padding)), x.dtype)


def _elements(e: Emitter, windows: _Windows, model: Value, include_padding: bool) -> Value:
    """Return the number of elements each window averages, in the shape and dtype of `model`."""
    factors: list[Value] = []
    constant = 1
    rank = len(model.shape)
    for d in range(windows.count):
        reach = windows.size[d]
        extent, output = windows.input[d], windows.output[d]
        edge = windows.padding[d] if include_padding else 0
        last = (output - 1) * windows.stride[d] + reach - windows.padding[d]
        whole = isinstance(last, int) and isinstance(extent, int) and last <= extent + edge
        if whole and (include_padding or windows.padding[d] == 0):
            constant *= reach
            continue
        start = e.iota((output,), 0)
        start = e.sub(e.mul(start, windows.stride[d]), windows.padding[d])
        end = e.clamp(e.add(start, reach), None, extent + edge)
        start = start if include_padding else e.clamp(start, 0, None)
        counted = spread(e, e.sub(end, start), model.shape, rank - windows.count + d)
        factors.append(e.cast(counted, model.dtype))
    if not factors:
        return e.constant(constant, model.dtype, model.shape)
    found = factors[0]
    for factor in factors[1:]:
        found = e.mul(found, factor)
    return found if constant == 1 else e.mul(found, constant)


for _count in (1, 2, 3):
    translates(f"avg_pool{_count}d.default")(_avg_pool(_count))


@translates("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool(e: Emitter, x: Value, size: Sequence[Dim]) -> Value:
    """Average one dim after the other: the windows of all dims are independent."""
    first = len(x.shape) - len(size)
    result = e.wide(x)
    for dim, want in enumerate(size, first):
        have = x.shape[dim]
        if not isinstance(have, int) or not isinstance(want, int) or not have or not want:
            raise NotTranslated("adaptive pooling of or to a symbolic or empty size")
        if have % want:
            result = _uneven_means(e, result, dim, have, want)
        else:
            blocks = (*result.shape[:dim], want, have // want, *result.shape[dim + 1 :])
            result = e.mean(e.reshape(result, blocks), (dim + 1,))
    return e.cast(result, x.dtype)


def _uneven_means(e: Emitter, x: Value, dim: int, have: int, want: int) -> Value:
    """Return means over [i * have // want, ceil((i + 1) * have / want)) along `dim`, i < want."""
    longest = -(-have // want) + 1
    plane = (want, longest)
    place = e.iota(plane, 0)
    start = e.pointwise("floordiv", e.mul(place, have), e.constant(want, I64))
    beyond = e.add(e.mul(e.add(place, 1), have), want - 1)
    end = e.pointwise("floordiv", beyond, e.constant(want, I64))
    position = e.add(start, e.iota(plane, 1))
    inside = e.compare("lt", position, end)
    windows = e.emit("index", x, e.clamp(position, None, have - 1), dims=(dim,), at=dim)
    after = [1] * (len(x.shape) - dim - 1)
    kept = e.where(e.reshape(inside, (*plane, *after)), windows, 0)
    total = e.reduce("reduce_sum", kept, (dim + 1,))
    count = e.slice(e.cast(e.sub(end, start), x.dtype), 1, 0, 1)
    return e.div(total, e.reshape(count, (want, *after)))
