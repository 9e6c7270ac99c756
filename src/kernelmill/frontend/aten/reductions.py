"""Reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import BOOL, F64, I64, U8, DType
from kernelmill.frontend.emitter import Emitter, wrap, wrap_all
from kernelmill.frontend.promotion import Number
from kernelmill.frontend.registry import NotTranslated, translates
from kernelmill.graph.ir import Value

Dims = Sequence[int] | int | None


@translates("sum.dim_IntList")
def sum_(e: Emitter, x: Value, dims: Dims, keep: bool = False, *, dtype: object = None) -> Value:
    return e.reduce("reduce_sum", e.cast(x, e.dtype), wrap_all(dims, len(x.shape)), keep)


@translates("sum.default")
def sum_all(e: Emitter, x: Value, *, dtype: object = None) -> Value:
    return sum_(e, x, None)


@translates("prims.sum")
def prims_sum(e: Emitter, x: Value, dims: Dims, *, output_dtype: object = None) -> Value:
    return sum_(e, x, dims)


@translates("mean.dim")
def mean(e: Emitter, x: Value, dims: Dims, keep: bool = False, *, dtype: object = None) -> Value:
    wide = e.cast(x, e.dtype.compute)
    return e.cast(e.mean(wide, wrap_all(dims, len(x.shape)), keep), e.dtype)


@translates("mean.default")
def mean_all(e: Emitter, x: Value, *, dtype: object = None) -> Value:
    return mean(e, x, None)


@translates("prod.dim_int")
def prod(e: Emitter, x: Value, dim: int, keep: bool = False, *, dtype: object = None) -> Value:
    return e.reduce("reduce_prod", e.cast(x, e.dtype), wrap_all(dim, len(x.shape)), keep)


@translates("prod.default")
def prod_all(e: Emitter, x: Value, *, dtype: object = None) -> Value:
    return e.reduce("reduce_prod", e.cast(x, e.dtype), wrap_all(None, len(x.shape)))


def _largest(e: Emitter, op: str, x: Value, dims: tuple[int, ...], keep: bool) -> Value:
    _refuse_nothing(e, x, dims)
    return e.reduce(op, x, dims, keep)


def _refuse_nothing(e: Emitter, x: Value, dims: Iterable[int]) -> None:
    """Refuse extremes over empty dims, an error in torch; have varying sizes be non-empty."""
    sizes = [x.shape[dim] for dim in dims]
    if 0 in sizes:
        raise NotTranslated("the largest or smallest of nothing")
    for size in sizes:
        e.symbols.require_positive(size)


@translates("amax", "prims.amax")
def amax(e: Emitter, x: Value, dims: Dims = None, keep: bool = False) -> Value:
    return _largest(e, "reduce_max", x, wrap_all(dims, len(x.shape)), keep)


@translates("amin", "prims.amin")
def amin(e: Emitter, x: Value, dims: Dims = None, keep: bool = False) -> Value:
    return _largest(e, "reduce_min", x, wrap_all(dims, len(x.shape)), keep)


@translates("max.default")
def max_all(e: Emitter, x: Value) -> Value:
    return amax(e, x)


@translates("min.default")
def min_all(e: Emitter, x: Value) -> Value:
    return amin(e, x)


@translates("aminmax")
def aminmax(
    e: Emitter, x: Value, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    return amin(e, x, dim, keepdim), amax(e, x, dim, keepdim)


@translates("max.dim")
def max_dim(e: Emitter, x: Value, dim: int, keep: bool = False) -> tuple[Value, Value]:
    return _extreme(e, x, dim, keep, "max")


@translates("min.dim")
def min_dim(e: Emitter, x: Value, dim: int, keep: bool = False) -> tuple[Value, Value]:
    return _extreme(e, x, dim, keep, "min")


def _extreme(e: Emitter, x: Value, dim: int, keep: bool, which: str) -> tuple[Value, Value]:
    value = _largest(e, f"reduce_{which}", x, wrap_all(dim, len(x.shape)), keep)
    if not x.shape:
        return value, e.constant(0, I64)
    return value, _position(e, x, dim, keep, f"arg{which}")


def _position(e: Emitter, x: Value, dim: int, keep: bool, op: str) -> Value:
    dim = wrap(dim, len(x.shape))
    ordered = e.cast(x, U8) if x.dtype == BOOL else x
    found = e.emit(op, ordered, dim=dim)
    return e.unsqueeze(found, dim) if keep else found


@translates("argmax")
def argmax(e: Emitter, x: Value, dim: int | None = None, keep: bool = False) -> Value:
    return _arg_reduce(e, x, dim, keep, "argmax")


@translates("argmin")
def argmin(e: Emitter, x: Value, dim: int | None = None, keep: bool = False) -> Value:
    return _arg_reduce(e, x, dim, keep, "argmin")


def _arg_reduce(e: Emitter, x: Value, dim: int | None, keep: bool, op: str) -> Value:
    if x.dtype == BOOL:
        raise NotTranslated(f"{op} of bools, an error in eager")
    if not x.shape:
        return e.constant(0, I64)
    _refuse_nothing(e, x, wrap_all(dim, len(x.shape)))
    if dim is not None:
        return _position(e, x, dim, keep, op)
    flat = e.reshape(x, (x.type.elements,))
    return e.reshape(_position(e, flat, 0, False, op), e.shape)


@translates("any.dim", "any.dims", "any.default")
def any_(e: Emitter, x: Value, dims: Dims = None, keep: bool = False) -> Value:
    return _logical(e, "reduce_max", x, dims, keep)


@translates("all.dim", "all.dims", "all.default")
def all_(e: Emitter, x: Value, dims: Dims = None, keep: bool = False) -> Value:
    return _logical(e, "reduce_min", x, dims, keep)


def _logical(e: Emitter, op: str, x: Value, dims: Dims, keep: bool) -> Value:
    # Unlike other reductions, over an empty list of dims these reduce none.
    none = isinstance(dims, Sequence) and not dims
    axes = () if none else wrap_all(dims, len(x.shape))
    # On u8 eager gives u8 zeros and ones.
    found = e.reduce(op, e.cast(x, BOOL), axes, keep)
    return e.cast(found, e.dtype)


@translates("logsumexp")
def logsumexp(e: Emitter, x: Value, dims: Dims, keep: bool = False) -> Value:
    w = e.wide(e.cast(x, e.dtype))
    axes = wrap_all(dims, len(x.shape))
    top = e.reduce("reduce_max", w, axes, True)
    # An infinite maximum would give inf - inf.
    top = e.where(e.compare("eq", e.emit("abs", top), math.inf), 0, top)
    total = e.reduce("reduce_sum", e.emit("exp", e.sub(w, top)), axes, True)
    result = e.add(e.emit("log", total), top)
    return e.cast(e.reshape(result, e.shape), e.dtype)


# ---- moments ----------------------------------------------------------------------------------


def moments(
    e: Emitter, x: Value, dims: Sequence[int], correction: Number = 0, bounded: bool = False
) -> tuple[Value, Value]:
    """Return (variance, mean) over dims, which are kept with size 1; x is f32 or f64. `bounded`:
    the mean is finite wherever x is."""
    mean = _bounded_mean(e, x, dims) if bounded else e.mean(x, dims, True)
    centred = e.sub(x, mean)
    total = e.reduce("reduce_sum", e.mul(centred, centred), dims, True)
    return e.div(total, _degrees(e, x, dims, correction, total)), mean


def _bounded_mean(e: Emitter, x: Value, dims: Sequence[int]) -> Value:
    """Return the mean of scaled elements, so that the sum cannot overflow."""
    count: Dim = product(x.shape[d] for d in dims)
    # A power of two above the count: exact, except for numbers near the smallest.
    scale = 2.0 ** -(count.bit_length() if isinstance(count, int) else _LONGEST_BITS)
    total = e.reduce("reduce_sum", e.mul(x, scale), dims, True)
    if isinstance(count, int):
        return e.div(total, e.constant(count * scale, x.dtype, total.shape))
    return e.div(total, e.mul(e.constant(count, x.dtype, total.shape), scale))


_LONGEST_BITS = 32
"""Bits that count the elements of any mean whose size is known only later."""


def _degrees(e: Emitter, x: Value, dims: Sequence[int], correction: Number, model: Value) -> Value:
    count: Dim = product(x.shape[d] for d in dims)
    if isinstance(count, int) and isinstance(correction, (int, float)):
        return e.constant(float(max(count - correction, 0)), x.dtype, model.shape)
    if correction == 0:
        return e.constant(count, x.dtype, model.shape)
    degrees = e.sub(e.constant(count, x.dtype, model.shape), correction)
    return e.clamp(degrees, 0, None)


def _variance(e: Emitter, x: Value, dims: Dims, correction: Number | None) -> tuple[Value, Value]:
    # As eager, in f64: neither the sum nor the squares overflow where the result does not.
    wide = e.cast(x, F64)
    return moments(e, wide, wrap_all(dims, len(x.shape)), 1 if correction is None else correction)


@translates("var.correction")
def var(
    e: Emitter, x: Value, dims: Dims = None, *, correction: Number | None = None,
    keepdim: bool = False,
) -> Value:  # fmt: skip
    variance, _ = _variance(e, x, dims, correction)
    return e.cast(e.reshape(variance, e.shape), e.dtype)


@translates("std.correction")
def std(
    e: Emitter, x: Value, dims: Dims = None, *, correction: Number | None = None,
    keepdim: bool = False,
) -> Value:  # fmt: skip
    variance, _ = _variance(e, x, dims, correction)
    return e.cast(e.emit("sqrt", e.reshape(variance, e.shape)), e.dtype)


@translates("var_mean.correction")
def var_mean(
    e: Emitter, x: Value, dims: Dims = None, *, correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    return _cast_both(e, *_variance(e, x, dims, correction))


@translates("std_mean.correction")
def std_mean(
    e: Emitter, x: Value, dims: Dims = None, *, correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    variance, mean_ = _variance(e, x, dims, correction)
    return _cast_both(e, e.emit("sqrt", variance), mean_)


def _cast_both(e: Emitter, first: Value, second: Value) -> tuple[Value, Value]:
    return (
        e.cast(e.reshape(first, e.out[0].shape), e.out[0].dtype),
        e.cast(e.reshape(second, e.out[1].shape), e.out[1].dtype),
    )


@translates("linalg_vector_norm")
def vector_norm(
    e: Emitter,
    x: Value,
    order: Number = 2,
    dims: Dims = None,
    keep: bool = False,
    *,
    dtype: DType | None = None,
) -> Value:
    if not isinstance(order, (int, float)):
        raise NotTranslated("a norm whose order is known only while running")
    axes = wrap_all(dims, len(x.shape))
    size = e.emit("abs", e.wide(e.cast(x, e.dtype)))
    return e.cast(_norm(e, size, float(order), axes, keep), e.dtype)


def _norm(e: Emitter, size: Value, order: float, axes: Sequence[int], keep: bool) -> Value:
    if order == math.inf:
        return e.reduce("reduce_max", size, axes, keep)
    if order == -math.inf:
        return e.reduce("reduce_min", size, axes, keep)
    if order == 0:
        nonzero = e.cast(e.compare("ne", size, 0), size.dtype)
        return e.reduce("reduce_sum", nonzero, axes, keep)
    if order == 1 or all(size.shape[d] == 1 for d in axes):  # one number is its own norm
        return e.reduce("reduce_sum", size, axes, keep)
    if order == 2:
        return e.emit("sqrt", e.reduce("reduce_sum", e.mul(size, size), axes, keep))
    power = e.pointwise("pow", size, e.constant(order, size.dtype))
    total = e.reduce("reduce_sum", power, axes, keep)
    return e.pointwise("pow", total, e.constant(1 / order, size.dtype))


@translates("_cdist_forward")
def distances(e: Emitter, a: Value, b: Value, order: float, mode: int | None) -> Value:
    """Return distances between all points of two sets, by their differences: where eager takes a
    product, it is not called by `cdist`. Eager's largest difference ignores NaN, and its count of
    differences is NaN where one is."""
    if e.dtype.compute != e.dtype or a.shape[-1] == 0:
        raise NotTranslated("distances of half types, or of points without coordinates")
    differences = e.sub(e.unsqueeze(a, len(a.shape) - 1), e.unsqueeze(b, len(b.shape) - 2))
    size, axis = e.emit("abs", differences), (len(differences.shape) - 1,)
    if order == math.inf:
        return e.clamp(e.reduce("reduce_maxnum", size, axis), 0, None)
    if order == 0:
        return e.reduce("reduce_sum", e.clamp(e.emit("ceil", size), None, 1), axis)
    return _norm(e, size, order, axis, keep=False)


# ---- scans ------------------------------------------------------------------------------------


def _scan(op: str) -> None:
    @translates(op)
    def translate(e: Emitter, x: Value, dim: int, **kwargs: Any) -> Value:
        x = e.cast(x, e.dtype)
        if not x.shape:
            return x
        return e.emit(op, x, dim=wrap(dim, len(x.shape)))


_scan("cumsum")
_scan("cumprod")
