"""Orders of elements, and counts of them: sort, topk, histc."""

from __future__ import annotations

from math import isfinite

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL, F32, F64, I64
from kernelmill.frontend.aten.indexing import at_least_1d
from kernelmill.frontend.emitter import Emitter, wrap
from kernelmill.frontend.promotion import Number
from kernelmill.frontend.registry import NotTranslated, translates
from kernelmill.graph.definition import Combine
from kernelmill.graph.ir import Value


@translates("sort.default")
def sort(e: Emitter, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return _sort(e, x, dim, descending, False)


@translates("sort.stable")
def sort_stable(
    e: Emitter, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return _sort(e, x, dim, descending, bool(stable))


def _sort(e: Emitter, x: Value, dim: int, descending: bool, stable: bool) -> tuple[Value, Value]:
    rank = len(x.shape)
    dim = wrap(dim, rank)
    if rank and e.strides[dim] == 0:
        # Torch leaves a row alone that it sees to be one element many times over.
        return x, e.iota(x.shape, dim)
    x = at_least_1d(e, x)
    order = e.emit("argsort", x, dim=dim, descending=descending, stable=stable)
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
    """The elements in this order, and the order, as traced."""
    values = e.emit("gather", x, order, dim=dim)
    return e.reshape(values, e.out[0].shape), e.reshape(order, e.out[1].shape)


_EXACT = {F32: 1 << 24, F64: 1 << 53}
"""Up to so many ones are counted exactly."""


@translates("histc.default")
def histc(e: Emitter, x: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Value:
    """How many elements lie in each of `bins` equal parts of [min, max], which rounds as eager."""
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
