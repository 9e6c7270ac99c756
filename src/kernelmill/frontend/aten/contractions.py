"""Matrix products.

Layout of ATen's four-bit weights on the CPU (`_weight_int4pack_mm_for_cpu`).

The layout is not documented, and depends on which of its kernels ATen has chosen for the processor
(`torch.backends.cpu.get_cpu_capability()`): blocks of neighbouring columns, for each k their
numbers two to a byte. In a whole block the low four bits are those of its first half of columns, in
an incomplete block those of every other column. The kernel is found by packing known numbers.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL, F32, I8, I32, U8, DType
from kernelmill.frontend.emitter import (
    Emitter,
    NotTranslated,
    Number,
    translates,
    translates_foreign,
)
from kernelmill.graph.ir import Value


@dataclass(frozen=True)
class Int4Layout:
    """Blocks of `block` columns. `halves`: in whole blocks the low bits are the first half."""

    block: int
    halves: bool

    def blocks(self, n: int) -> list[tuple[int, int, bool]]:
        """Return the number of blocks of each kind, their columns, and whether the low four bits
        are the first half of these."""
        whole, rest = divmod(n, self.block)
        found = [(whole, self.block, self.halves), (1, rest, False)]
        return [(count, size, halves) for count, size, halves in found if count and size]


LAYOUTS = (Int4Layout(64, True), Int4Layout(32, True), Int4Layout(32, False))
"""Layouts of ATen's kernels for vectors of 512 bits, of 256 bits, and for other processors."""

_COLUMNS, _DEPTH = 112, 32


@cache
def int4_layout() -> Int4Layout | None:
    """Return the layout of this process; None if it is none of the known ones."""
    numbers = torch.randint(
        0, 16, (_COLUMNS, _DEPTH), dtype=torch.int32, generator=torch.Generator().manual_seed(0)
    )
    try:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    except (AttributeError, RuntimeError):  # a torch without it, or for another processor
        return None
    fits = (layout for layout in LAYOUTS if torch.equal(_unpacked(packed, layout), numbers))
    return next(fits, None) if tuple(packed.shape) == (_COLUMNS, _DEPTH // 2) else None


def _unpacked(packed: Tensor, layout: Int4Layout) -> Tensor:
    """Return the numbers (n, k) int32 of a packed weight."""
    n, k = packed.shape[0], packed.shape[1] * 2
    parts: list[Tensor] = []
    flat, at = packed.reshape(-1), 0
    for count, size, halves in layout.blocks(n):
        bytes = flat[at : at + count * size * k // 2].reshape(count, k, size // 2)
        at += bytes.numel()
        nibbles = torch.stack((bytes & 15, bytes >> 4), dim=2 if halves else 3)
        columns = nibbles.reshape(count, k, size).permute(0, 2, 1)
        parts.append(columns.reshape(count * size, k))
    return torch.cat(parts).to(torch.int32)


def unpacked_int4(e: Emitter, packed: Value, n: int, k: int, layout: Int4Layout) -> Value:
    """Emit the unpacking in the graph: numbers (n, k) of u8."""
    flat, at, parts = e.reshape(packed, (n * k // 2,)), 0, list[Value]()
    for count, size, halves in layout.blocks(n):
        end = at + count * size * k // 2
        shape = (count, k, size // 2)
        bytes = e.reshape(e.slice(flat, 0, at, end), shape)
        at = end
        low = e.emit("bit_and", bytes, e.expand(e.constant(15, packed.dtype), shape))
        high = e.emit("shr", bytes, e.expand(e.constant(4, packed.dtype), shape))
        dim = 2 if halves else 3
        both = e.emit("concat", e.unsqueeze(low, dim), e.unsqueeze(high, dim), dim=dim)
        columns = e.permute(e.reshape(both, (count, k, size)), (0, 2, 1))
        parts.append(e.reshape(columns, (count * size, k)))
    return parts[0] if len(parts) == 1 else e.emit("concat", *parts, dim=0)


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
    node = x.made_by("cast")
    source = None if x.dtype != I32 or node is None else node.operands[0]
    return source if source is not None and source.dtype == I8 else None


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
    if a.dtype != U8 or b.dtype != I8:
        return e.emit("matmul", a, b, dtype=I32)
    # torchao has numbers without a sign where the processor multiplies these: a = signed + 128.
    signed = e.cast(e.sub(e.cast(a, I32), 128), I8)
    columns = e.reduce("reduce_sum", e.cast(b, I32), (0,))
    return e.add(e.emit("matmul", signed, b, dtype=I32), e.mul(columns, 128))


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
