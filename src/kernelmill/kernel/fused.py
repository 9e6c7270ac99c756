"""a*b + c with one rounding, on numpy arrays."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isfinite
from typing import Any

import numpy as np

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
