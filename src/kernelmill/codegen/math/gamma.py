"""digamma in f64; f32 goes through it."""

from __future__ import annotations

import math

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math import vector_libm
from kernelmill.codegen.math.building import absolute, copysign, horner
from kernelmill.core.dtype import F32, F64

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
