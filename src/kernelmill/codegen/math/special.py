"""Special functions: the error function and its inverse; in f64, through which f32 goes, digamma
and the modified Bessel function of the first kind and order 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math import vector_libm
from kernelmill.codegen.math.coefficients import ERF, ERFC, ERFINV_MIDDLE, ERFINV_START, ERFINV_TAIL
from kernelmill.codegen.math.elementary import absolute, at_most, copysign, exp2_normal, horner
from kernelmill.core.dtype import F32, F64


def erf(x: Reg) -> Reg:
    """f32: a polynomial below 0.6; above, 1 - 2^P with P a polynomial; 1 from 4 on."""
    code = x.code
    a = at_most(absolute(x), 4.0)
    large = 1.0 - exp2_normal(horner(a, ERFC))
    square = a * a
    small = code.fma(a, horner(square, ERF), a)
    return copysign(code.select(a.compare("olt", 0.6), small, large), x)


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


_BERNOULLI = (
    1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12,
)  # fmt: skip
"""B_2n / (2n) for n = 1..7: digamma(x) = ln x - 1/(2x) - sum of these over x^2n (Abramowitz and
Stegun, 6.3.18)."""
_ENOUGH = 10
"""From here on the seven terms are exact to f64."""


def digamma(x: Reg) -> Reg:
    """The logarithmic derivative of gamma: -inf at 0, inf at -0, NaN at negative integers."""
    code = x.code
    if x.dtype == F32:
        return code.convert("fptrunc", digamma(code.convert("fpext", x, F64)), F32)
    negative = x.compare("olt", 0.0)
    right = _of_positive(code.select(negative, 1.0 - x, x))
    # digamma(1 - x) - digamma(x) = pi / tan(pi x), with pi x taken after the whole turns are off.
    angle = (x - code.intrinsic("roundeven", x)) * math.pi
    reflected = right - math.pi / vector_libm.call("tan", [angle])
    result = code.select(negative, reflected, right)
    result = code.select(x.compare("oeq", 0.0), copysign(x.like(math.inf), -x), result)
    whole = x.compare("oeq", code.intrinsic("floor", x)) & negative
    return code.select(whole, math.nan, result)


def _of_positive(x: Reg) -> Reg:
    code = x.code
    total = x.like(0.0)
    for _ in range(_ENOUGH):
        small = x.compare("olt", float(_ENOUGH))
        total = total - code.select(small, 1.0 / x, 0.0)
        x = code.select(small, x + 1.0, x)
    inverse = 1.0 / x
    square = inverse * inverse
    tail = square * horner(square, _BERNOULLI)
    finite = ((vector_libm.call("log", [x]) - inverse * 0.5) - tail) + total
    return code.select(absolute(x).compare("oeq", math.inf), x, finite)


_SMALL = (
    0.67679527440947608, -0.3046826723431984, 0.17162090152220878, -0.094901097048047644,
    0.049305284239670708, -0.023737414805899469, 0.010546460394594998, -0.0043243099950505759,
    0.0016394756169413358, -5.7637557453858237e-4, 1.8850288509584166e-4, -5.7541950100821037e-5,
    1.6448448070728897e-5, -4.4167383584587506e-6, 1.1173875391201037e-6, -2.6707938539406117e-7,
    6.0469950225419189e-8, -1.300025009986248e-8, 2.6598237246823867e-9, -5.1897956016352629e-10,
    9.6758090353732369e-11, -1.7268262914415557e-11, 2.9550526631296398e-12,
    -4.8564467831119295e-13, 7.6761854986049356e-14, -1.1685332877993452e-14,
    1.715391285555133e-15, -2.4312798465479547e-16, 3.3307945188222381e-17,
    -4.4153416464793394e-18,
)  # fmt: skip
"""Chebyshev coefficients of e^-x I0(x) for x in [0, 8], in x / 4 - 1."""

_LARGE = (
    0.80449041101410883, 0.0033691164782556941, 6.889758346916824e-5, 2.8913705208347565e-6,
    2.0489185894690637e-7, 2.2666689904981781e-8, 3.3962320257083863e-9, 4.9406023882249696e-10,
    1.1889147107846438e-11, -3.1499165279632414e-11, -1.3215811840447713e-11,
    -1.7941785315068061e-12, 7.1801244513836662e-13, 3.8527783827421427e-13,
    1.5400862175214098e-14, -4.1505693472872221e-14, -9.5548466988283076e-15,
    3.8116806693526224e-15, 1.7725601330565264e-15, -3.4254856196772191e-16,
    -2.8276239805165835e-16, 3.4612228676974611e-17, 4.46562142029676e-17,
    -4.8305044859441821e-18, -7.233180487874754e-18,
)  # fmt: skip
"""Chebyshev coefficients of sqrt(x) e^-x I0(x) for x from 8 on, in 16 / x - 1."""


def i0(x: Reg) -> Reg:
    """I0(x) = I0(-x); in f64 infinite where e^|x| is, and NaN at infinities, both as in eager."""
    code = x.code
    if x.dtype == F32:
        return code.convert("fptrunc", i0(code.convert("fpext", x, F64)), F32)
    a = absolute(x)
    power = vector_libm.call("exp", [a])
    small = power * _chebyshev(a * 0.25 - 1.0, _SMALL)
    large = power * _chebyshev(16.0 / a - 1.0, _LARGE) / code.intrinsic("sqrt", a)
    return code.select(a.compare("ole", 8.0), small, large)


def _chebyshev(t: Reg, coefficients: Sequence[float]) -> Reg:
    """c0 / 2 + c1 T1(t) + c2 T2(t) + ... by Clenshaw's recurrence."""
    twice = t + t
    later, last = t.like(0.0), t.like(coefficients[-1])
    for coefficient in reversed(coefficients[1:-1]):
        later, last = last, t.code.fma(twice, last, -later + coefficient)
    return t.code.fma(t, last, -later + 0.5 * coefficients[0])
