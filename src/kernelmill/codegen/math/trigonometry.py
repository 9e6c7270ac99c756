"""sin and cos of f32: x = k * pi/2 + r, and a polynomial in r for either of them.

pi/2 in three f32 parts (Cody and Waite, 1980) is enough up to 2^15; larger arguments, which no
model has, go to a library function that knows more digits of pi.
"""

from __future__ import annotations

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math import vector_libm
from kernelmill.codegen.math.building import absolute, horner, rarely, rounded
from kernelmill.codegen.math.coefficients import COS, SIN
from kernelmill.core.dtype import F32, I32

_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""pi/2 as a sum of f32 numbers, each the nearest to what the ones before leave."""
_TWO_OVER_PI = 0.6366197723675814
_LARGE = 2.0**15


def _reduced(a: Reg) -> tuple[Reg, Reg]:
    """(r, bits whose low ones are k) of a number that is not negative."""
    code = a.code
    k, shifted = rounded(a, _TWO_OVER_PI)
    r = a
    for part in _HALF_PI:
        r = code.fma(k, -part, r)
    return r, shifted.bits_as(I32)


def _sine_or_cosine(r: Reg, quadrant: Reg) -> Reg:
    """sin(r), or where the quadrant is odd cos(r), with the sign that its second bit asks for."""
    code = r.code
    square = r * r
    sine = code.fma(r * square, horner(square, SIN), r)
    cosine = code.fma(square * square, horner(square, COS), code.fma(square, -0.5, 1.0))
    picked = code.select((quadrant & 1).compare("ne", 0), cosine, sine)
    return (picked.bits_as(I32) ^ ((quadrant & 2) << 30)).bits_as(F32)


def sin(x: Reg) -> Reg:
    """The sine of an angle in radians."""
    a = absolute(x)
    r, k = _reduced(a)
    sign = x.bits_as(I32) & -0x80000000
    usual = (_sine_or_cosine(r, k).bits_as(I32) ^ sign).bits_as(F32)
    return rarely(a.compare("ogt", _LARGE), usual, lambda: vector_libm.call("sin", [x]))


def cos(x: Reg) -> Reg:
    """The cosine of an angle in radians."""
    a = absolute(x)
    r, k = _reduced(a)
    usual = _sine_or_cosine(r, k + 1)
    return rarely(a.compare("ogt", _LARGE), usual, lambda: vector_libm.call("cos", [x]))
