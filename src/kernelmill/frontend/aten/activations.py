"""Activation functions and softmax, computed in f32 and rounded once, as in eager.

Softmax and its relatives, computed in f32 for half types and rounded once.

Arguments of the exponential are not above 0, which makes powers of 2 as good as powers of e: x
log2(e) is rounded, and so 2^(x log2(e)) is off by some 2^-24 of the largest, no more than the
rounding of the difference. The maximum may ignore a NaN, which makes the sum NaN, and so every
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelmill.core.dtype import F32
from kernelmill.frontend.emitter import Emitter, NotTranslated, Number, translates, wrap
from kernelmill.graph.ir import Value

_SQRT_HALF = math.sqrt(0.5)
_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715


def _clamped(name: str, default_low: Number, default_high: Number | None) -> None:
    @translates(name)
    def translate(
        e: Emitter, x: Value, low: Number = default_low, high: Number | None = default_high
    ) -> Value:
        return e.clamp(x, low, high)


_clamped("relu", 0, None)
_clamped("relu6", 0, 6)
_clamped("hardtanh", -1, 1)


@translates("silu_backward")
def silu_backward(e: Emitter, grad: Value, x: Value) -> Value:
    g, w = e.wide(grad), e.wide(x)
    s = e.emit("sigmoid", w)
    one_minus = e.sub(e.constant(1, s.dtype, s.shape), s)
    slope = e.mul(s, e.add(e.mul(w, one_minus), 1))
    return e.cast(e.mul(g, slope), e.dtype)


@translates("gelu")
def gelu(e: Emitter, x: Value, *, approximate: str = "none") -> Value:
    w = e.wide(x)
    half = e.mul(w, 0.5)
    if approximate == "tanh":
        inner = e.mul(e.add(w, e.mul(e.mul(e.mul(w, w), w), _TANH_CUBIC)), _TANH_SCALE)
        gate = e.add(e.emit("tanh", inner), 1)
    else:
        gate = e.add(e.emit("erf", e.mul(w, _SQRT_HALF)), 1)
    return e.cast(e.mul(half, gate), x.dtype)


@translates("gelu_backward")
def gelu_backward(e: Emitter, grad: Value, x: Value, *, approximate: str = "none") -> Value:
    g, w = e.wide(grad), e.wide(x)
    slope = _gelu_tanh_slope(e, w) if approximate == "tanh" else _gelu_slope(e, w)
    return e.cast(e.mul(g, slope), e.dtype)


def _gelu_slope(e: Emitter, x: Value) -> Value:
    cdf = e.mul(e.add(e.emit("erf", e.mul(x, _SQRT_HALF)), 1), 0.5)
    pdf = e.mul(e.emit("exp", e.mul(e.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return e.add(cdf, e.mul(x, pdf))


def _gelu_tanh_slope(e: Emitter, x: Value) -> Value:
    square = e.mul(x, x)
    inner = e.mul(e.add(x, e.mul(e.mul(square, x), _TANH_CUBIC)), _TANH_SCALE)
    t = e.emit("tanh", inner)
    left = e.mul(e.add(t, 1), 0.5)
    one = e.constant(1, t.dtype, t.shape)
    inner_slope = e.mul(e.add(e.mul(square, 3 * _TANH_CUBIC), 1), _TANH_SCALE)
    right = e.mul(e.mul(e.mul(x, 0.5), e.sub(one, e.mul(t, t))), inner_slope)
    return e.add(left, right)


@translates("leaky_relu")
def leaky_relu(e: Emitter, x: Value, slope: Number = 0.01) -> Value:
    return e.where(e.compare("gt", x, 0), x, e.cast(e.mul(e.wide(x), slope), x.dtype))


@translates("elu")
def elu(e: Emitter, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    w = e.wide(x)
    negative = e.mul(e.emit("expm1", e.mul(w, input_scale)), alpha * scale)
    return e.cast(e.where(e.compare("gt", w, 0), e.mul(w, scale), negative), x.dtype)


@translates("softplus")
def softplus(e: Emitter, x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    w = e.wide(x)
    scaled = e.mul(w, beta)
    soft = e.div(e.emit("log1p", e.emit("exp", scaled)), beta)
    return e.cast(e.where(e.compare("gt", scaled, threshold), w, soft), x.dtype)


def _wide(name: str, function: Callable[[Emitter, Value], Value]) -> None:
    @translates(name)
    def translate(e: Emitter, x: Value) -> Value:
        return e.cast(function(e, e.wide(x)), x.dtype)


def _hard(e: Emitter, x: Value) -> Value:
    return e.clamp(e.add(x, 3), 0, 6)


_wide("silu", lambda e, x: e.mul(x, e.emit("sigmoid", x)))
_wide("hardswish", lambda e, x: e.div(e.mul(x, _hard(e, x)), 6))
_wide("hardsigmoid", lambda e, x: e.div(_hard(e, x), 6))
_wide("mish", lambda e, x: e.mul(x, e.emit("tanh", e.emit("log1p", e.emit("exp", x)))))


@translates("log_sigmoid_forward")
def log_sigmoid(e: Emitter, x: Value) -> tuple[Value, Value]:
    """Return min(x, 0) - log1p(exp(-|x|)), and exp(-|x|) for the backward."""
    w = e.wide(x)
    decay = e.emit("exp", e.emit("neg", e.emit("abs", w)))
    result = e.cast(e.sub(e.clamp(w, None, 0), e.emit("log1p", decay)), x.dtype)
    if e.out[1].shape != x.shape:
        raise NotTranslated("log_sigmoid with an empty buffer")
    return result, e.cast(decay, e.out[1].dtype)


@translates("threshold_backward")
def threshold_backward(e: Emitter, grad: Value, x: Value, threshold: Number) -> Value:
    grad, x = e.cast(grad, e.dtype), e.cast(x, e.dtype)
    return e.where(e.compare("le", x, threshold), 0, grad)


@translates("sigmoid_backward")
def sigmoid_backward(e: Emitter, grad: Value, out: Value) -> Value:
    g, y = e.wide(grad), e.wide(out)
    one = e.constant(1, y.dtype, y.shape)
    return e.cast(e.mul(g, e.mul(e.sub(one, y), y)), e.dtype)


@translates("tanh_backward")
def tanh_backward(e: Emitter, grad: Value, out: Value) -> Value:
    g, y = e.wide(grad), e.wide(out)
    one = e.constant(1, y.dtype, y.shape)
    return e.cast(e.mul(g, e.sub(one, e.mul(y, y))), e.dtype)


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
