"""The error function and its inverse."""

from __future__ import annotations

import math

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math import vector_libm
from kernelmill.codegen.math.building import absolute, at_most, copysign, horner
from kernelmill.codegen.math.coefficients import ERF, ERFC, ERFINV_MIDDLE, ERFINV_START, ERFINV_TAIL
from kernelmill.codegen.math.exponential import exp_normal
from kernelmill.core.dtype import F32, F64


def erf(x: Reg) -> Reg:
    """f32: a polynomial below 0.9; above, 1 - e^-P with P a polynomial; 1 from 4 on."""
    code = x.code
    a = at_most(absolute(x), 4.0)
    large = 1.0 - exp_normal(-horner(a, ERFC))
    square = a * a
    small = code.fma(a, horner(square, ERF), a)
    return copysign(code.select(a.compare("olt", 0.9), small, large), x)


def erfinv(x: Reg) -> Reg:
    """f32 through f64, where a polynomial is enough; f64 takes a step of Halley after it."""
    code = x.code
    if x.dtype == F32:
        return code.convert("fptrunc", _start(code.convert("fpext", x, F64), ERFINV_TAIL, 3), F32)
    start = _start(x, ERFINV_START, 4)
    return code.select(absolute(x).compare("olt", 1.0), _halley(x, start), start)


def _start(x: Reg, tail: tuple[float, ...], middle: float) -> Reg:
    """Return erfinv to about 28 bits below 0.97, above to the accuracy of the tail's polynomial."""
    code = x.code
    a = absolute(x)
    near = a.compare("ole", 0.97)
    one_less = 1.0 - a
    w = -vector_libm.call("log", [code.select(near, one_less * (a + 1.0), one_less)])
    inner = a * horner(w, ERFINV_MIDDLE)
    outer = horner(code.intrinsic("sqrt", w) - middle, tail)
    result = copysign(code.select(near, inner, outer), x)
    result = code.select(a.compare("oeq", 1.0), copysign(x.like(math.inf), x), result)
    return code.select(a.compare("ogt", 1.0), math.nan, result)


def _halley(x: Reg, y: Reg) -> Reg:
    """One step towards erf(y) = x, on the side where the difference keeps its digits."""
    code = x.code
    a, b = absolute(x), absolute(y)
    below = vector_libm.call("erf", [b]) - a
    above = (1.0 - a) - vector_libm.call("erfc", [b])
    difference = code.select(a.compare("olt", 0.5), below, above)
    slope = vector_libm.call("exp", [-(b * b)]) * (2 / math.sqrt(math.pi))
    step = difference / slope
    better = b - step / (1.0 + b * step)
    return copysign(better, x)
