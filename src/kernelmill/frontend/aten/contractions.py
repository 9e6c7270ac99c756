"""Matrix products."""

from __future__ import annotations

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL, F32, I8, I32, DType
from kernelmill.frontend.aten.int4_layout import int4_layout, unpacked_int4
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.promotion import Number
from kernelmill.frontend.registry import NotTranslated, translates, translates_foreign
from kernelmill.graph.ir import Value


def matmul(e: Emitter, a: Value, b: Value) -> Value:
    """Emit (B..., M, K) x (B..., K, N); NotTranslated unless the dtypes are one type of numbers."""
    return e.emit("matmul", *_factors(e, a, b))


def sums(e: Emitter, a: Value, b: Value) -> Value:
    """Emit as `matmul`, with sums of half types left unrounded."""
    return e.emit("matmul", *_factors(e, a, b), **_unrounded(a))


def _factors(e: Emitter, a: Value, b: Value) -> tuple[Value, Value]:
    """Return both factors, with the sizes of `b` that have to be equal spelled as in `a`."""
    a, b = _numbers(a, b)
    return a, e.respelled(b, (*a.shape[:-2], a.shape[-1], b.shape[-1]))


def _numbers(a: Value, b: Value) -> tuple[Value, Value]:
    if a.dtype == BOOL or a.dtype != b.dtype:
        raise NotTranslated(f"matrix product of {a.dtype} and {b.dtype}")
    return a, b


def _unrounded(a: Value) -> dict[str, DType]:
    """Return the attribute that leaves a contraction's sums unrounded, for a later addition."""
    return {} if a.dtype.compute == a.dtype else {"dtype": a.dtype.compute}


@translates("mm.default", "bmm.default")
def mm(e: Emitter, a: Value, b: Value) -> Value:
    narrow_a, narrow_b = _widened(a), _widened(b)
    if narrow_a is not None and narrow_b is not None:
        return e.emit("matmul", *_factors(e, narrow_a, narrow_b), dtype=I32)
    return matmul(e, a, b)


def _widened(x: Value) -> Value | None:
    """Return the int8 value that was cast to this int32 one, if so. Products of two such values are
    exact either way, and int8 has instructions of its own."""
    if x.dtype != I32 or x.node is None or x.node.op != "cast":
        return None
    source = x.node.operands[0]
    return source if source.dtype == I8 else None


@translates("_grouped_mm.default")
def grouped_mm(
    e: Emitter,
    a: Value,
    b: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: DType | None = None,
) -> Value:
    """Multiply consecutive rows of `a`, up to each of `offs`, by the next matrix of `b`."""
    if offs is None and bias is None and len(a.shape) == len(b.shape) == 3:
        return matmul(e, a, b)
    if offs is None or bias is not None or (len(a.shape), len(b.shape)) != (2, 3):
        raise NotTranslated("a grouped product that cuts its columns or its depth")
    return e.emit("grouped_matmul", *_numbers(a, b), offs)


@translates_foreign("kernelmill.grouped_rows")
@translates_foreign("transformers.grouped_mm_fallback")
def grouped_mm_of_transformers(e: Emitter, input: Value, weight: Value, offs: Value) -> Value:
    return e.emit("grouped_matmul", *_numbers(input, weight), offs)


@translates("_int_mm.default")
def int_mm(e: Emitter, a: Value, b: Value) -> Value:
    return e.emit("matmul", a, b, dtype=I32)


@translates("_weight_int8pack_mm.default")
def weight_int8pack_mm(e: Emitter, x: Value, weight: Value, scales: Value) -> Value:
    """Multiply x (m, k) by int8 weight (n, k), sums scaled by column before they are rounded."""
    columns = e.permute(e.cast(weight, x.dtype), (1, 0))
    result = e.mul(sums(e, x, columns), e.expand(e.wide(scales), e.shape))
    return e.cast(result, e.dtype)


@translates("_weight_int4pack_mm_for_cpu.default")
def weight_int4pack_mm(
    e: Emitter, x: Value, weight: Value, group: int, scales_and_zeros: Value
) -> Value:
    """Multiply x (m, k) by a four-bit weight (n, k) in ATen's layout: each number less 8, times the
    scale, plus the zero of its group of k: (k / group, n, 2)."""
    layout = int4_layout()
    n, k = weight.shape[0], x.shape[1]
    if layout is None:
        raise NotTranslated("this build of torch packs four bits in another way")
    if not isinstance(n, int) or not isinstance(k, int):
        raise NotTranslated("a weight of four bits of symbolic size")
    numbers = e.cast(unpacked_int4(e, weight, n, k, layout), F32)

    def spread(index: int) -> Value:
        one = e.wide(e.select(scales_and_zeros, 2, index))
        groups = e.expand(e.unsqueeze(one, 1), (k // group, group, n))
        return e.permute(e.reshape(groups, (k, n)), (1, 0))

    made = e.add(e.mul(e.sub(numbers, 8.0), spread(0)), spread(1))
    return e.cast(matmul(e, e.wide(x), e.permute(made, (1, 0))), e.dtype)  # rounded once


@translates("addmm.default", "baddbmm.default")
def addmm(
    e: Emitter, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    return _plus(e, sums(e, a, b), bias, beta, alpha)


@translates("addmv.default")
def addmv(
    e: Emitter, bias: Value, a: Value, v: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    product = e.reshape(sums(e, a, e.unsqueeze(v, 1)), (a.shape[0],))
    return _plus(e, product, bias, beta, alpha)


def _plus(e: Emitter, result: Value, bias: Value, beta: Number, alpha: Number) -> Value:
    """Return beta * bias + alpha * result, rounded once; beta 0 ignores the bias, NaN and all."""
    if alpha != 1:
        result = e.mul(result, alpha)
    if beta == 0:
        return e.cast(result, e.dtype)
    bias = e.cast(bias, result.dtype)
    if beta != 1:
        bias = e.mul(bias, beta)
    return e.cast(e.add(result, e.expand(bias, result.shape)), e.dtype)


@translates("mv.default")
def mv(e: Emitter, a: Value, v: Value) -> Value:
    product = matmul(e, a, e.unsqueeze(v, 1))
    return e.reshape(product, (a.shape[0],))


@translates("dot.default", "vdot.default")
def dot(e: Emitter, a: Value, b: Value) -> Value:
    return e.reshape(matmul(e, e.unsqueeze(a, 0), e.unsqueeze(b, 1)), ())


@translates("linear.default")
def linear(e: Emitter, x: Value, weight: Value, bias: Value | None = None) -> Value:
    rows: Dim = 1
    for size in x.shape[:-1]:
        rows = rows * size
    flat = e.reshape(x, (rows, x.shape[-1]))
    columns = e.permute(weight, (1, 0))
    if bias is None:
        return e.reshape(matmul(e, flat, columns), e.shape)
    result = e.add(sums(e, flat, columns), e.wide(bias))
    return e.reshape(e.cast(result, e.dtype), e.shape)
