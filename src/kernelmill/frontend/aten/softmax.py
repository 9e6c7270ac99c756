"""Softmax and its relatives, computed in f32 for half types and rounded once.

Arguments of the exponential are not above 0, which makes powers of 2 as good as powers of e: x
log2(e) is rounded, and so 2^(x log2(e)) is off by some 2^-24 of the largest, no more than the
rounding of the difference. The maximum may ignore a NaN, which makes the sum NaN, and so every
result.
"""

from __future__ import annotations

import math

from kernelmill.core.dtype import F32
from kernelmill.frontend.emitter import Emitter, wrap
from kernelmill.frontend.registry import translates
from kernelmill.graph.ir import Value


def _axes(x: Value, dim: int) -> tuple[int, ...]:
    """Return the dim to reduce, or none for a 0-d or empty tensor: a maximum needs an element."""
    return () if not x.shape or 0 in x.shape else (wrap(dim, len(x.shape)),)


def _shifted(e: Emitter, x: Value, dim: int) -> tuple[Value, tuple[int, ...]]:
    axes = _axes(x, dim)
    return e.sub(x, e.reduce("reduce_maxnum", x, axes, True)), axes


def _power(e: Emitter, shifted: Value) -> Value:
    """Emit e^x for x that is not above 0."""
    if shifted.dtype != F32:
        return e.emit("exp", shifted)
    return e.emit("exp2", e.mul(shifted, math.log2(math.e)))


def _share(e: Emitter, power: Value, total: Value) -> Value:
    """Emit power / total, for a total that is 1 at least, or NaN."""
    return e.mul(power, e.emit("reciprocal", total))


@translates("_softmax")
def softmax(e: Emitter, x: Value, dim: int, half_to_float: bool = False) -> Value:
    shifted, axes = _shifted(e, e.wide(x), dim)
    power = _power(e, shifted)
    return e.cast(_share(e, power, e.reduce("reduce_sum", power, axes, True)), e.dtype)


@translates("_safe_softmax")
def safe_softmax(e: Emitter, x: Value, dim: int, dtype: object = None) -> Value:
    """Emit a softmax that is zero in rows of -inf alone."""
    wide = e.wide(e.cast(x, e.dtype))
    axes = _axes(wide, dim)
    top = e.reduce("reduce_max", wide, axes, True)
    masked = e.compare("eq", top, -math.inf)
    power = _power(e, e.sub(wide, e.where(masked, 0, top)))
    total = e.where(masked, 1, e.reduce("reduce_sum", power, axes, True))
    return e.cast(_share(e, power, total), e.dtype)


@translates("_log_softmax")
def log_softmax(e: Emitter, x: Value, dim: int, half_to_float: bool = False) -> Value:
    shifted, axes = _shifted(e, e.wide(x), dim)
    total = e.reduce("reduce_sum", _power(e, shifted), axes, True)
    return e.cast(e.sub(shifted, e.emit("log", total)), e.dtype)


@translates("_softmax_backward_data")
def softmax_backward(e: Emitter, grad: Value, out: Value, dim: int, dtype: object) -> Value:
    axes = _axes(out, dim)
    y = e.wide(out)
    weighted = e.mul(e.wide(grad), y)
    total = e.reduce("reduce_sum", weighted, axes, True)
    return e.cast(e.sub(weighted, e.mul(y, total)), e.dtype)


@translates("_log_softmax_backward_data")
def log_softmax_backward(e: Emitter, grad: Value, out: Value, dim: int, dtype: object) -> Value:
    axes = _axes(out, dim)
    g = e.wide(grad)
    total = e.reduce("reduce_sum", g, axes, True)
    return e.cast(e.sub(g, e.mul(e.emit("exp", e.wide(out)), total)), e.dtype)
