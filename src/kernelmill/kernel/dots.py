"""Reference results of dot units (core/target/dot_units.py) on numpy arrays; bf16 is bits."""

from __future__ import annotations

import numpy as np

from kernelmill.core.dtype import BF16, DType
from kernelmill.core.target.dot_units import DotUnit, Sums
from kernelmill.kernel.fused import Array, to_odd

_NUMPY = {"bf16": np.uint16, "i8": np.int8, "u8": np.uint8, "i16": np.int16}

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
