"""Pairs of quantisation and dequantisation in PT2E's exported models: the operators of torch's
library `quantized_decomposed`. Scales and zero points that a call computes are those of
torch.ao.quantization.utils.determine_qparams."""

from __future__ import annotations

from kernelmill.core.dtype import F32, F64, I32, I64, U8, DType
from kernelmill.frontend.emitter import Emitter, NotTranslated, translates_foreign
from kernelmill.graph.ir import Value

_Parameter = Value | float | int


@translates_foreign("quantized_decomposed.quantize_per_tensor")
def quantize_per_tensor(
    e: Emitter, x: Value, scale: _Parameter, zero: _Parameter, low: int, high: int, dtype: DType
) -> Value:
    """clamp(round(x * (1 / scale)) + zero, low, high), where a tensor of one element may give the
    scale and the zero."""
    factor: _Parameter
    if isinstance(scale, Value):
        one = e.reshape(e.cast(scale, F64), ())
        factor = e.cast(e.pointwise("reciprocal", one), F32)
    else:
        factor = 1.0 / scale
    return _quantised(e, x, factor, _number(e, zero), (low, high), dtype)


@translates_foreign("quantized_decomposed.dequantize_per_tensor")
def dequantize_per_tensor(
    e: Emitter, x: Value, scale: _Parameter, zero: _Parameter, low: int, high: int, dtype: DType,
    *, out_dtype: DType | None = None,
) -> Value:  # fmt: skip
    """(x - zero) * scale."""
    wide = e.cast(x, out_dtype or F32)
    return e.mul(e.sub(wide, _number(e, zero, wide.dtype)), _number(e, scale, wide.dtype))


@translates_foreign("quantized_decomposed.quantize_per_channel")
def quantize_per_channel(
    e: Emitter, x: Value, scales: Value, zeros: Value, axis: int, low: int, high: int, dtype: DType
) -> Value:
    """The same with a scale and a zero for each place along an axis."""
    factors = e.align(e.pointwise("reciprocal", scales), len(x.shape), axis)
    zeros = e.cast(e.align(zeros, len(x.shape), axis), F32)
    return _quantised(e, x, factors, zeros, (low, high), dtype)


@translates_foreign("quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(
    e: Emitter, x: Value, scales: Value, zeros: Value | None, axis: int, low: int, high: int,
    dtype: DType, *, out_dtype: DType | None = None,
) -> Value:  # fmt: skip
    """The same with a scale and a zero for each place along an axis."""
    if zeros is not None and zeros.dtype.is_float:
        raise NotTranslated("zero points that are no integers")
    if zeros is not None:
        x = e.sub(e.cast(x, zeros.dtype), e.align(zeros, len(x.shape), axis))
    result = e.mul(e.cast(x, scales.dtype), e.align(scales, len(x.shape), axis))
    return e.cast(result, out_dtype or F32)


@translates_foreign("quantized_decomposed.choose_qparams")
def choose_qparams(
    e: Emitter, x: Value, low: int, high: int, eps: float, dtype: DType
) -> tuple[Value, Value]:
    """The scale and the zero for the least and the largest number of a tensor."""
    least, most = _range(e, x)
    scale = _scale(e, e.div(e.sub(most, least), float(high - low)), eps)
    steps = e.cast(e.pointwise("round", e.div(e.cast(least, F32), scale)), I32)
    zero = e.clamp(e.sub(e.constant(low, I32), steps), low, high)
    return _one(e, scale, F64), _one(e, zero, I64)


@translates_foreign("quantized_decomposed.choose_qparams_symmetric")
def choose_qparams_symmetric(
    e: Emitter, x: Value, low: int, high: int, eps: float, dtype: DType
) -> tuple[Value, Value]:
    """The scale for the number that is largest in size, and the zero in the middle."""
    least, most = _range(e, x)
    size = e.pointwise("maximum", e.pointwise("neg", least), most)
    scale = _scale(e, e.div(size, (high - low) / 2), eps)
    return _one(e, scale, F64), e.constant(128 if dtype == U8 else 0, I64, (1,))


def _range(e: Emitter, x: Value) -> tuple[Value, Value]:
    """Return the least and the largest number of a tensor and zero."""
    dims = range(len(x.shape))
    none = e.constant(0, x.dtype)
    return (
        e.pointwise("minimum", e.reduce("reduce_min", x, dims), none),
        e.pointwise("maximum", e.reduce("reduce_max", x, dims), none),
    )


def _scale(e: Emitter, scale: Value, eps: float) -> Value:
    return e.pointwise("maximum", e.cast(scale, F32), e.constant(eps, F32))


def _one(e: Emitter, number: Value, dtype: DType) -> Value:
    return e.reshape(e.cast(number, dtype), (1,))


def _quantised(
    e: Emitter, x: Value, factor: _Parameter, zero: _Parameter, ends: tuple[int, int], dtype: DType
) -> Value:
    whole = e.pointwise("round", e.mul(e.cast(x, F32), factor))
    return e.cast(e.clamp(e.add(whole, zero), *ends), dtype)


def _number(e: Emitter, number: _Parameter, dtype: DType = F32) -> _Parameter:
    """Return the only element of a tensor as a value without dims; a number unchanged."""
    return e.cast(e.reshape(number, ()), dtype) if isinstance(number, Value) else number
