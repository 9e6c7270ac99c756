"""Reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import BOOL, F64, I64, U8, DType
from kernelmill.frontend.emitter import Emitter, NotTranslated, Number, translates, wrap, wrap_all
from kernelmill.graph.ir import Value

Dims = Sequence[int] | int | None


@translates("sum.dim_IntList", "sum.default", "prims.sum")
def sum_(e: Emitter, x: Value, dims: Dims = None, keep: bool = False, **dtypes: object) -> Value:
    return e.reduce("reduce_sum", e.cast(x, e.dtype), wrap_all(dims, len(x.shape)), keep)


@translates("mean.dim", "mean.default")
def mean(e: Emitter, x: Value, dims: Dims = None, keep: bool = False, **dtypes: object) -> Value:
    wide = e.cast(x, e.dtype.compute)
    return e.cast(e.mean(wide, wrap_all(dims, len(x.shape)), keep), e.dtype)


@translates("prod.dim_int", "prod.default")
def prod(e: Emitter, x: Value, dims: Dims = None, keep: bool = False, **dtypes: object) -> Value:
    return e.reduce("reduce_prod", e.cast(x, e.dtype), wrap_all(dims, len(x.shape)), keep)


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


def _extremes(which: str) -> None:
    """Register the reductions to the largest or the smallest element, and to its position."""

    @translates(f"a{which}", f"prims.a{which}", f"{which}.default")
    def value(e: Emitter, x: Value, dims: Dims = None, keep: bool = False) -> Value:
        return _largest(e, f"reduce_{which}", x, wrap_all(dims, len(x.shape)), keep)

    @translates(f"{which}.dim")
    def both(e: Emitter, x: Value, dim: int, keep: bool = False) -> tuple[Value, Value]:
        found = value(e, x, dim, keep)
        if not x.shape:
            return found, e.constant(0, I64)
        return found, _position(e, x, dim, keep, f"arg{which}")

    @translates(f"arg{which}")
    def position(e: Emitter, x: Value, dim: int | None = None, keep: bool = False) -> Value:
        return _arg_reduce(e, x, dim, keep, f"arg{which}")


for _which in ("max", "min"):
    _extremes(_which)


@translates("aminmax")
def aminmax(
    e: Emitter, x: Value, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Value, ...]:
    dims = wrap_all(dim, len(x.shape))
    return tuple(_largest(e, f"reduce_{which}", x, dims, keepdim) for which in ("min", "max"))


def _position(e: Emitter, x: Value, dim: int, keep: bool, op: str) -> Value:
    dim = wrap(dim, len(x.shape))
    ordered = e.cast(x, U8) if x.dtype == BOOL else x
    found = e.emit(op, ordered, dim=dim)
    return e.unsqueeze(found, dim) if keep else found


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


def _logical(names: str, op: str) -> None:
    @translates(*names.split())
    def translate(e: Emitter, x: Value, dims: Dims = None, keep: bool = False) -> Value:
        # Unlike other reductions, over an empty list of dims these reduce none.
        none = isinstance(dims, Sequence) and not dims
        axes = () if none else wrap_all(dims, len(x.shape))
        # On u8 eager gives u8 zeros and ones.
        found = e.reduce(op, e.cast(x, BOOL), axes, keep)
        return e.cast(found, e.dtype)


_logical("any.dim any.dims any.default", "reduce_max")
_logical("all.dim all.dims all.default", "reduce_min")


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


def _deviation(name: str) -> None:
    """Register a variance, or its root, by itself or with the mean."""

    @translates(f"{name}.correction")
    def translate(
        e: Emitter, x: Value, dims: Dims = None, *, correction: Number | None = None,
        keepdim: bool = False,
    ) -> Value | tuple[Value, ...]:  # fmt: skip
        # As eager, in f64: neither the sum nor the squares overflow where the result does not.
        axes, least = wrap_all(dims, len(x.shape)), 1 if correction is None else correction
        variance, mean = moments(e, e.cast(x, F64), axes, least)
        if name == "std_mean":
            variance = e.emit("sqrt", variance)
        elif name == "std":
            variance = e.emit("sqrt", e.reshape(variance, e.shape))
        found = tuple(
            e.cast(e.reshape(value, kind.shape), kind.dtype)
            for value, kind in zip((variance, mean), e.out, strict=False)
        )
        return found if name.endswith("mean") else next(iter(found))


for _name in ("var", "std", "var_mean", "std_mean"):
    _deviation(_name)


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
