"""The modified Bessel function of the first kind and order 0, in f64; f32 goes through it."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math import vector_libm
from kernelmill.codegen.math.building import absolute
from kernelmill.core.dtype import F32, F64

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
