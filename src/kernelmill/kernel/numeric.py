"""Meaning of each operator of the kernel IR, on numpy arrays with one element a lane.

bf16 is represented by its bits in uint16, since numpy has no such type; f16 is numpy's. Only dot
units compute on either. A tile is an array of its rows. Functions of `math` are computed in f64 and
rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np

from kernelmill.core.dtype import BF16, BOOL, F16, F32, I32, I64, DType
from kernelmill.core.target.dot_units import DOT_UNITS, DotUnit, Sums
from kernelmill.kernel.ir import COMPARE, MATH, REDUCE, Instr, VType

Array = np.ndarray[Any, np.dtype[Any]]


def fma(a: Array, b: Array, c: Array) -> Array:
    """Compute a * b + c: floats with one rounding, integers wrapping."""
    if a.dtype == np.float32:
        return to_odd(a, b, c).astype(np.float32)
    if a.dtype == np.float64:
        lanes = np.broadcast(a, b, c)
        return np.array([_fma_f64(*map(float, lane)) for lane in lanes])
    return a * b + c


def to_odd(a: Array, b: Array, c: Array) -> Array:
    """Compute a*b + c of f32 as f64, rounded to odd: the result is on the same side of every number
    of less than 52 bits as the exact value.

    The product is exact; a sum that is not moves to its odd neighbour. Rounding to odd keeps a
    second rounding from seeing a tie that is none (Boldo and Melquiond, 2008); the error of the sum
    is Knuth's.
    """
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    product = a * b
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    if not error.any():
        return total
    even = total.view(np.int64) % 2 == 0
    odd = np.nextafter(total, np.copysign(np.inf, error))
    moved = np.isfinite(error) & (error != 0) & even
    return np.where(moved, odd, total)


def _fma_f64(a: float, b: float, c: float) -> float:
    """Compute a * b + c exactly, in fractions, but for zeros and infinite numbers or NaN."""
    exact = Fraction(0)
    if isfinite(a) and isfinite(b) and isfinite(c):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return inf if exact > 0 else -inf


_LEAST = 2.0**-126
_LAST_OF_F32 = np.int64(1 << 29)
"""The last bit of an f32 in an f64."""

_BEYOND_F32 = _LAST_OF_F32 - 1
_TINY = _LEAST * (1 - 2.0**-25)
"""What is smaller does not round to the least normal f32, had exponents no end."""


def dot(unit: DotUnit, a: Array, b: Array, c: Array) -> Array:
    """Return c plus, in each lane, the products of the numbers in the words of `a` and `b`."""
    if unit.on_blocks:
        a, b = np.broadcast_to(a, unit.rows), np.broadcast_to(b, unit.columns)
        a, b = a.repeat(unit.columns), np.tile(b, unit.rows)
    left, right = (
        np.ascontiguousarray(words).view(_NUMPY[dtype.name]).reshape(-1, unit.group)
        for words, dtype in zip(np.broadcast_arrays(a, b), (unit.a, unit.b), strict=True)
    )
    return _summed(unit, _numbers(left, unit.a), _numbers(right, unit.b), c)


def tile_dot(unit: DotUnit, a: Array, b: Array, c: Array) -> Array:
    """Return c plus the product of two tiles: `b` has a row of words for each group in `a`."""
    rows, columns = c.shape
    left = _numbers(a, unit.a).reshape(rows, 1, -1)
    right = _numbers(b, unit.b).reshape(-1, columns, unit.group).transpose(1, 0, 2)
    return _summed(unit, left, right.reshape(1, columns, -1), c)


def _numbers(values: Array, dtype: DType) -> Array:
    if dtype == BF16:
        return _flushed((values.astype(np.uint32) << 16).view(np.float32))
    return values.astype(np.int32)


def _summed(unit: DotUnit, a: Array, b: Array, c: Array) -> Array:
    """Return c plus the products along the last axis."""
    if unit.sums == Sums.WRAPPING:
        return (a * b).sum(axis=-1, dtype=np.int32) + c
    c = _flushed(c)
    if unit.sums == Sums.UPPER_FIRST:
        return _add(a[..., 0], b[..., 0], _add(a[..., 1], b[..., 1], c))
    if unit.sums == Sums.TO_ODD:
        for k in range(0, unit.group, 2):
            low, high = (_product(a[..., half], b[..., half]) for half in (k, k + 1))
            c = _sum_to_odd(c, _sum_to_odd(low, high))
        return c
    assert unit.sums == Sums.EVEN_AND_ODD, unit.sums
    chains = [np.zeros_like(c), np.zeros_like(c)]
    for k in range(a.shape[-1]):
        chains[k % 2] = _add(a[..., k], b[..., k], chains[k % 2])
    one = np.ones_like(c)
    return _add(_add(chains[0], one, chains[1]), one, c)


def _add(a: Array, b: Array, c: Array) -> Array:
    """Return a*b + c with one rounding of f32, none of them denormal."""
    exact = to_odd(a, b, c)
    kept = np.where(np.abs(exact) < _TINY, np.copysign(0.0, exact), exact)
    return kept.astype(np.float32)


def _product(a: Array, b: Array) -> Array:
    """Return the product of two bf16 in f32, where it is exact."""
    return _flushed(a * b)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """Return a + b, where inexact the neighbour in f32 whose last bit is set; none denormal."""
    exact = to_odd(a, np.ones_like(a), b).view(np.int64)
    inexact = (exact & _BEYOND_F32) != 0
    odd = (exact & ~_BEYOND_F32 | np.where(inexact, _LAST_OF_F32, 0)).view(np.float64)
    return _flushed(odd).astype(np.float32)


def _flushed(x: Array) -> Array:
    """Replace denormals by zeros of their sign."""
    return np.where(np.abs(x) < np.float32(_LEAST), np.copysign(np.float32(0), x), x)


_NUMPY: dict[str, type[np.generic]] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8,
    "bool": np.bool_,
}  # fmt: skip


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return numpy's dtype for this element type, in buffers as in registers."""
    return np.dtype(_NUMPY[dtype.name])


def literal(value: bool | int | float, dtype: DType) -> Array:
    """Return one lane with this number, rounded to nearest even; to half types by way of f32."""
    if dtype.is_float and dtype.bits == 16:
        return cast(np.array([value], np.float32), F32, dtype)
    return np.array([value], numpy_dtype(dtype))


def literal_dtype(instr: Instr, position: int, registers: Sequence[DType]) -> DType:
    """Return the type of a literal operand number `position`, given the registers' types."""
    if instr.op in COMPARE:
        return registers[0]
    if instr.op in ("extract", "lane_mask"):
        return I64
    if instr.op == "dot" and position < 2:
        return DOT_UNITS[str(instr.attrs["unit"])].word
    return BOOL if instr.op == "select" and position == 0 else instr.result.type.dtype


def apply(instr: Instr, args: Sequence[Array], types: Sequence[DType]) -> Array:
    """Return the result's lanes, of a tile its rows. `types` are the operands' element types."""
    type = instr.result.type
    shape = (type.rows, type.lanes) if type.rows else (type.lanes,)
    result = _apply(instr, args, types)
    return result if result.shape == shape else np.array(np.broadcast_to(result, shape))


def _apply(instr: Instr, args: Sequence[Array], types: Sequence[DType]) -> Array:
    op, type = instr.op, instr.result.type
    if op in _ELEMENTWISE:
        return _ELEMENTWISE[op](*args)
    if op in MATH:
        return _math(op, args).astype(args[0].dtype)
    if op in REDUCE:
        return _reduce(_REDUCE[op], args[0])
    if op == "cast":
        return cast(args[0], types[0], type.dtype, str(instr.attrs.get("outside", "")))
    if op == "bitcast":
        return np.ascontiguousarray(args[0]).view(numpy_dtype(type.dtype))
    return _VECTOR[op](instr, args, type)


# ---- arithmetic -----------------------------------------------------------------------------


def _is_float(a: Array) -> bool:
    return a.dtype.kind == "f"


def _divide(
    floats: Callable[..., Array], integers: Callable[..., Array], a: Array, b: Array
) -> Array:
    """Divide; integers give 0 where the divisor is 0 and where the quotient overflows."""
    if _is_float(a):
        return floats(a, b)
    undefined = b == 0
    if a.dtype.kind == "i":
        undefined = undefined | (b == -1) & (a == np.iinfo(a.dtype).min)
    one, zero = a.dtype.type(1), a.dtype.type(0)
    return np.where(undefined, zero, integers(a, np.where(undefined, one, b)))


def _truncated(a: Array, b: Array) -> Array:
    return (a - np.fmod(a, b)) // b


def _extreme(better: Callable[..., Array], a: Array, b: Array) -> Array:
    picked = np.where(better(a, b), a, b)
    return np.where(a != a, a, picked)


def _shift(shift: Callable[..., Array], a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    valid = (b >= 0) & (b < bits)
    if shift is np.right_shift and a.dtype.kind == "i":
        return np.right_shift(a, np.where(valid, b, a.dtype.type(bits - 1)))
    zero = a.dtype.type(0)
    return np.where(valid, shift(a, np.where(valid, b, zero)), zero)


_ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": partial(_divide, np.true_divide, _truncated),
    "rem": partial(_divide, np.fmod, np.fmod),
    "neg": np.negative,
    "abs": np.absolute,
    "min": partial(_extreme, np.less),
    "max": partial(_extreme, np.greater),
    "fma": fma,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "copysign": np.copysign,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": partial(_shift, np.left_shift),
    "shr": partial(_shift, np.right_shift),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "select": np.where,
}


def _math(op: str, args: Sequence[Array]) -> Array:
    if op == "nextafter":
        return np.nextafter(*args)
    # Imported here: kernels can be read and compiled where there is no torch.
    import torch

    lanes = np.broadcast_arrays(*args)
    wide = [torch.from_numpy(lane.astype(np.float64)) for lane in lanes]
    return getattr(torch, op)(*wide).numpy()


# ---- conversions ----------------------------------------------------------------------------


def cast(value: Array, source: DType, target: DType, outside: str = "lowest") -> Array:
    """Convert as ir.py says; to half types everything goes by way of f32."""
    if source == target:
        return value
    if source == BF16:
        value, source = (value.astype(np.uint32) << 16).view(np.float32), F32
    if target == BF16:
        return _to_bf16(cast(value, source, F32))
    if target == BOOL:
        return value != 0
    if target == F16:
        return cast(value, source, F32).astype(np.float16)
    if source.is_float and target.is_integer:
        return _truncate(value, target, outside)
    return value.astype(numpy_dtype(target))


def _to_bf16(value: Array) -> Array:
    bits = value.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    kept = np.where(np.isnan(value), np.uint32(0x7FC00000), rounded)
    return (kept >> 16).astype(np.uint16)


def _truncate(value: Array, target: DType, outside: str) -> Array:
    """Truncate: u8 is the low byte of the i64, other narrow types the low bits of the i32."""
    through = I64 if target.kind == "uint" or target.bits == 64 else I32
    limit = 2.0 ** (through.bits - 1)
    wide = value.astype(np.float64)
    fits = np.abs(wide) < limit
    whole = np.where(fits, wide, 0).astype(np.int64)
    rest = np.full(wide.shape, -int(limit))
    if outside == "nearest":
        rest = np.where(wide > 0, int(limit) - 1, np.where(np.isnan(wide), 0, rest))
    return np.where(fits, whole, rest).astype(numpy_dtype(target))


# ---- vectors --------------------------------------------------------------------------------


def _reduce(fold: Callable[[Array, Array], Array], value: Array) -> Array:
    """Fold the upper half onto the lower until one lane is left; a middle one waits."""
    while len(value) > 1:
        half = (len(value) + 1) // 2
        rest = len(value) - half
        value = np.concatenate((fold(value[:rest], value[half:]), value[rest:half]))
    return value


_REDUCE = {
    "reduce_add": _ELEMENTWISE["add"],
    "reduce_mul": _ELEMENTWISE["mul"],
    "reduce_max": _ELEMENTWISE["max"],
    "reduce_min": _ELEMENTWISE["min"],
    "reduce_and": _ELEMENTWISE["and"],
    "reduce_or": _ELEMENTWISE["or"],
}


def _extract(instr: Instr, args: Sequence[Array], type: VType) -> Array:
    source, lane = args[0], int(args[1][0])
    if not 0 <= lane < len(source):
        raise IndexError(f"lane {lane} of {len(source)}")
    return source[lane : lane + 1]


def _slice(instr: Instr, args: Sequence[Array], type: VType) -> Array:
    start = int(instr.attrs["start"])
    return args[0][start : start + type.lanes]


def _interleave(instr: Instr, args: Sequence[Array], type: VType) -> Array:
    start = int(instr.attrs["half"]) * type.lanes
    return np.stack(args, axis=1).reshape(-1)[start : start + type.lanes]


def _dot(instr: Instr, args: Sequence[Array], type: VType) -> Array:
    compute = tile_dot if type.rows else dot
    return compute(DOT_UNITS[str(instr.attrs["unit"])], *args)


_VECTOR: dict[str, Callable[[Instr, Sequence[Array], VType], Array]] = {
    "splat": lambda instr, args, type: args[0],
    "check": lambda instr, args, type: args[0],
    "iota": lambda instr, args, type: np.arange(type.lanes).astype(numpy_dtype(type.dtype)),
    "extract": _extract,
    "lane_mask": lambda instr, args, type: np.arange(type.lanes) < args[0],
    "concat2": lambda instr, args, type: np.concatenate((args[0], args[1])),
    "interleave": _interleave,
    "slice": _slice,
    "dot": _dot,
    "tile_dot": _dot,
    "tile_zero": lambda instr, args, type: np.zeros(1, numpy_dtype(type.dtype)),
}
