"""Operators that join tensors: cat, stack, repeat, roll, pad."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, maximum, mod
from kernelmill.frontend.aten.views import sign_known, slice_start
from kernelmill.frontend.emitter import Emitter, wrap
from kernelmill.frontend.promotion import Number
from kernelmill.frontend.registry import NotTranslated, translates
from kernelmill.graph.ir import Value


def concat(e: Emitter, parts: Sequence[Value], dim: int) -> Value:
    return parts[0] if len(parts) == 1 else e.emit("concat", *parts, dim=dim)


@translates("cat", "concat", "prims.cat")
def cat(e: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    rank = len(e.shape)
    dim = wrap(dim, rank)
    # An empty 1-d tensor goes with any rank, for the sake of old programs.
    parts = [x for x in tensors if len(x.shape) == rank and x.shape[dim] != 0]
    if not parts:
        return e.constant(0, e.dtype, e.shape)
    return concat(e, [e.cast(x, e.dtype) for x in parts], dim)


@translates("stack")
def stack(e: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim = wrap(dim, len(e.shape))
    return concat(e, [e.unsqueeze(e.cast(x, e.dtype), dim) for x in tensors], dim)


@translates("repeat")
def repeat(e: Emitter, x: Value, repeats: Sequence[Dim]) -> Value:
    lead = len(repeats) - len(x.shape)
    sizes: list[Dim] = [1] * lead + list(x.shape)
    thin: list[Dim] = []
    wide: list[Dim] = []
    for size, times in zip(sizes, repeats, strict=True):
        thin += [1, size]
        wide += [times, size]
    return e.reshape(e.expand(e.reshape(x, thin), wide), e.shape)


@translates("roll")
def roll(e: Emitter, x: Value, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> Value:
    if 0 in x.shape:
        return x
    if not dims:
        flat = e.reshape(x, (x.type.elements,))
        return e.reshape(_roll_one(e, flat, shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll_one(e, x, shift, wrap(dim, len(x.shape)))
    return x


def _roll_one(e: Emitter, x: Value, shift: Dim, dim: int) -> Value:
    size = x.shape[dim]
    cut = mod(size - shift, maximum(size, 1))
    if cut == 0:
        return x
    return concat(e, [e.slice(x, dim, cut, size), e.slice(x, dim, 0, cut)], dim)


@translates("constant_pad_nd")
def constant_pad(e: Emitter, x: Value, amounts: Sequence[Dim], value: Number = 0) -> Value:
    """Pad by `amounts`: (low, high) of the last dim, then the one before; negative ones crop."""
    rank = len(x.shape)
    low: list[Dim] = [0] * rank
    high: list[Dim] = [0] * rank
    for i in range(len(amounts) // 2):
        d = rank - 1 - i
        below, above = amounts[2 * i], amounts[2 * i + 1]
        low[d], high[d] = maximum(below, 0), maximum(above, 0)
        x = e.slice(x, d, maximum(-below, 0), x.shape[d] - maximum(-above, 0))
    if not isinstance(value, (bool, int, float)):
        raise NotTranslated("padding with a value known only while running")
    return e.pad(x, low, high, value)


@translates("slice_backward")
def slice_backward(
    e: Emitter,
    grad: Value,
    sizes: Sequence[Dim],
    dim: int,
    start: Dim,
    end: Dim,
    step: int,
) -> Value:
    dim = wrap(dim, len(sizes))
    if step != 1:
        raise NotTranslated("backward of a slice with a step")
    first = slice_start(e, sizes[dim], start)
    return _pad_dim(e, grad, dim, first, sizes[dim] - first - grad.shape[dim])


@translates("select_backward")
def select_backward(e: Emitter, grad: Value, sizes: Sequence[Dim], dim: int, index: Dim) -> Value:
    dim = wrap(dim, len(sizes))
    if sign_known(index) < 0:
        index = sizes[dim] + index
    return _pad_dim(e, e.unsqueeze(grad, dim), dim, index, sizes[dim] - index - 1)


def _pad_dim(e: Emitter, x: Value, dim: int, low: Dim, high: Dim) -> Value:
    rank = len(x.shape)
    lows: list[Dim] = [low if d == dim else 0 for d in range(rank)]
    highs: list[Dim] = [high if d == dim else 0 for d in range(rank)]
    return e.pad(x, lows, highs, 0)
