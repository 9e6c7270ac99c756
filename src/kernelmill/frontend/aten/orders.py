"""Sorting, searching and counting of elements: sort, topk, searchsorted, histc."""

from __future__ import annotations

from math import isfinite

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL, F32, F64, I32, I64
from kernelmill.frontend.aten.scatters import at_least_1d
from kernelmill.frontend.emitter import Emitter, NotTranslated, Number, translates, wrap
from kernelmill.graph.ir import Combine, Value


@translates("sort.default", "sort.stable")
def sort(
    e: Emitter, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Value, Value]:
    rank = len(x.shape)
    dim = wrap(dim, rank)
    if rank and e.strides[dim] == 0:
        # Torch leaves a row alone that it sees to be one element many times over.
        return x, e.iota(x.shape, dim)
    x = at_least_1d(e, x)
    order = e.emit("argsort", x, dim=dim, descending=descending, stable=bool(stable))
    return _taken(e, x, order, dim)


@translates("topk.default")
def topk(
    e: Emitter, x: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if x.dtype == BOOL:
        raise NotTranslated("topk of bools")
    x = at_least_1d(e, x)
    dim = wrap(dim, len(x.shape))
    order = e.emit("argtopk", x, dim=dim, k=k, largest=largest, sorted=sorted)
    return _taken(e, x, order, dim)


def _taken(e: Emitter, x: Value, order: Value, dim: int) -> tuple[Value, Value]:
    """Return the elements in this order, and the order, both in the traced shapes."""
    values = e.emit("gather", x, order, dim=dim)
    return e.reshape(values, e.out[0].shape), e.reshape(order, e.out[1].shape)


# ---- searches -------------------------------------------------------------------------------


@translates("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    e: Emitter, rows: Value, values: Value | Number, *, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    if sorter is not None:
        raise NotTranslated("a search in the order of another tensor")
    if side not in (None, "left", "right") or (right and side == "left"):
        raise NotTranslated(f"a search with side={side!r} and right={right}")
    if rows.dtype == BOOL:
        raise NotTranslated("a search among bools")
    value = _as_numbers(e, values, rows)
    behind, dtype = right or side == "right", I32 if out_int32 else I64
    return e.emit("searchsorted", rows, value, right=behind, dtype=dtype)


@translates("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    e: Emitter, values: Value | Number, boundaries: Value, *, out_int32: bool = False,
    right: bool = False,
) -> Value:  # fmt: skip
    if len(boundaries.shape) != 1:
        raise NotTranslated("boundaries of several rows")
    return searchsorted(e, boundaries, values, out_int32=out_int32, right=right)


def _as_numbers(e: Emitter, values: Value | Number, rows: Value) -> Value:
    """Return the values to search for in the dtype of the rows, if the comparison allows it."""
    if isinstance(values, Value):
        return values
    if not isinstance(values, (int, float)) or isinstance(values, bool):
        raise NotTranslated("a search for a number known only while running")
    if isinstance(values, float) and not rows.dtype.is_float:
        raise NotTranslated("a search for a fraction among integers")
    return e.constant(values, rows.dtype, ())


_EXACT = {F32: 1 << 24, F64: 1 << 53}
"""Most ones that a sum in this type counts exactly."""


@translates("histc.default")
def histc(e: Emitter, x: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Value:
    """Count the elements in each of `bins` equal parts of [min, max], with eager's rounding."""
    if x.dtype not in _EXACT:
        raise NotTranslated(f"histc of {x.dtype}")
    if not (isinstance(min, (int, float)) and isinstance(max, (int, float))):
        raise NotTranslated("histc between numbers known only while running")
    if not (isfinite(min) and isfinite(max) and min < max):
        raise NotTranslated("histc between the least and the largest element")
    flat = e.reshape(x, (x.type.elements,))
    low, high = e.constant(min, x.dtype, flat.shape), e.constant(max, x.dtype, flat.shape)
    inside = e.emit("bit_and", e.emit("ge", flat, low), e.emit("le", flat, high))
    scaled = e.div(e.mul(e.sub(flat, low), bins), e.sub(high, low))
    part = e.clamp(e.cast(e.where(inside, scaled, 0), I64), None, bins - 1)
    size = flat.shape[0]
    count = x.dtype if isinstance(size, int) and size <= _EXACT[x.dtype] else I64
    zeros = e.constant(0, count, (bins,))
    found = e.emit(
        "index_put",
        zeros,
        e.cast(inside, count),
        part,
        dims=(0,),
        at=0,
        mode=Combine.ADD,
        unsigned=True,
    )
    return e.cast(found, x.dtype)
