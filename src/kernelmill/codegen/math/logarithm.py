"""Logarithms of f32: x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2))."""

from __future__ import annotations

import math

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math.building import copysign, horner, two_parts
from kernelmill.codegen.math.coefficients import LOG, LOG2, LOG10
from kernelmill.core.dtype import F32, I32

_LN2_HIGH, _LN2_LOW = two_parts(math.log(2))
_LOG10_2_HIGH, _LOG10_2_LOW = two_parts(math.log10(2))
_ROOT_HALF = 0x3F3504F3
"""The bits of sqrt(1/2)."""
_SMALLEST_NORMAL = 2.0**-126


def _exponent(x: Reg) -> Reg:
    """e of a positive normal number, as i32."""
    return (x.bits_as(I32) - _ROOT_HALF) >> 23


def _split(x: Reg) -> tuple[Reg, Reg]:
    """(f, e as a float) of a positive number, denormal ones too."""
    code = x.code
    denormal = x.compare("olt", _SMALLEST_NORMAL)
    normal = code.select(denormal, x * 2.0**24, x)
    e = _exponent(normal)
    m = (normal.bits_as(I32) - (e << 23)).bits_as(F32)
    adjust = code.select(denormal, x.like(-24.0), 0.0)
    return m - 1.0, code.convert("sitofp", e, F32) + adjust


def _edges(x: Reg, result: Reg) -> Reg:
    """Infinity and NaN are their own logarithm, 0 gives -infinity, less NaN."""
    code = x.code
    result = code.select(x.compare("olt", math.inf), result, x)
    result = code.select(x.compare("olt", 0.0), math.nan, result)
    return code.select(x.compare("oeq", 0.0), -math.inf, result)


def _natural(f: Reg, e: Reg) -> Reg:
    """log(1 + f) + e * ln(2)."""
    code = f.code
    square = f * f
    tail = (f * square) * horner(f, LOG)
    tail = code.fma(e, _LN2_LOW, tail)
    tail = code.fma(square, -0.5, tail)
    return code.fma(e, _LN2_HIGH, f + tail)


def log(x: Reg) -> Reg:
    """The natural logarithm."""
    return _edges(x, _natural(*_split(x)))


def log1p(x: Reg) -> Reg:
    """log(1 + x): f = x * 2^-e + (2^-e - 1) has one rounding, whatever 1 + x lost."""
    code = x.code
    # 2^-e has to be normal, and far above 2^24 the 1 is of no matter.
    huge = x.compare("ogt", 2.0**64)
    y = code.select(huge, x * 2.0**-32, x)
    u = y + 1.0
    e = _exponent(u)
    scale = ((127 - e) << 23).bits_as(F32)
    f = code.fma(y, scale, scale - 1.0)
    e_float = code.convert("sitofp", e, F32) + code.select(huge, x.like(32.0), 0.0)
    return copysign(_edges(u, _natural(f, e_float)), x)


def log2(x: Reg) -> Reg:
    """The logarithm to base 2; exact for powers of two."""
    code = x.code
    f, e = _split(x)
    tail = code.fma(horner(f, LOG2), f, 1 / math.log(2) - 1)
    # f itself is the larger part, and adding it last spares its product a rounding.
    return _edges(x, code.fma(f, tail, f) + e)


def log10(x: Reg) -> Reg:
    """The logarithm to base 10."""
    code = x.code
    f, e = _split(x)
    tail = code.fma(horner(f, LOG10), f, 1 / math.log(10) - 0.5)
    result = code.fma(f, tail, f * 0.5)
    result = code.fma(e, _LOG10_2_LOW, result)
    return _edges(x, code.fma(e, _LOG10_2_HIGH, result))
