"""exp and its relatives on f32: 2^k * e^r with k an integer and |r| <= ln(2)/2."""

from __future__ import annotations

import math

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math.building import (
    MAGIC,
    absolute,
    at_least,
    at_most,
    copysign,
    horner,
    power_of_two,
    rounded,
    scaled,
    two_parts,
)  # fmt: skip
from kernelmill.codegen.math.coefficients import EXP, EXP2, EXPM1, TANH
from kernelmill.codegen.targets import answers

_LN2_HIGH, _LN2_LOW = two_parts(math.log(2))
_LOG2E = 1 / math.log(2)

_OVERFLOW = 89.0
"""Above ln(2^128): the result is infinite from here on."""
_UNDERFLOW = -104.5
"""Below ln(2^-150): the result rounds to 0 from here on."""


def _reduced(x: Reg) -> tuple[Reg, Reg, Reg]:
    """(r, k, k + MAGIC) with x = k * ln(2) + r."""
    code = x.code
    k, shifted = rounded(x, _LOG2E)
    r = code.fma(k, -_LN2_HIGH, x)
    return code.fma(k, -_LN2_LOW, r), k, shifted


def _exp_of_reduced(r: Reg) -> Reg:
    return horner(r, (1.0, 1.0, *EXP))


def exp(x: Reg) -> Reg:
    """e^x."""
    return _exp_below(at_most(x, _OVERFLOW))


def _exp_below(x: Reg) -> Reg:
    """e^x for x up to the overflow."""
    r, k, shifted = _reduced(at_least(x, _UNDERFLOW))
    return scaled(_exp_of_reduced(r), k, shifted)


def exp_normal(x: Reg) -> Reg:
    """e^x for x in [-87, 88], where no result is denormal."""
    r, _, shifted = _reduced(x)
    return _exp_of_reduced(r) * power_of_two(shifted)


def exp2(x: Reg) -> Reg:
    """2^x, from the integer below x on."""
    part = answers(x.code.isa).above_floor(x)
    if part is not None:
        whole = answers(x.code.isa).scale(horner(part, (1.0, *EXP2)), x)
        assert whole is not None, "instructions on exponents come together"
        return whole
    x = at_least(at_most(x, 128.5), -151.0)
    k = x.code.intrinsic("floor", x)
    return scaled(horner(x - k, (1.0, *EXP2)), k, k + MAGIC)


def expm1(x: Reg) -> Reg:
    """e^x - 1, as 2 * (2^(k-1) * (e^r - 1) + (2^(k-1) - 1/2)), which overflows only at the end."""
    code = x.code
    r, _, shifted = _reduced(at_least(at_most(x, _OVERFLOW), -18.0))
    small = code.fma(r * r, horner(r, EXPM1), r)
    scale = power_of_two(shifted, 1)
    half = code.fma(scale, small, scale - 0.5)
    # The smallest are their own result, denormals and the negative zero among them.
    return code.select(absolute(x).compare("olt", 2.0**-25), x, half + half)


def sigmoid(x: Reg) -> Reg:
    """1 / (1 + e^-x), without overflow on the negative side: e^x / (1 + e^x) there."""
    code = x.code
    e = _exp_below(-absolute(x))
    over = code.select(x.compare("olt", 0.0), e, 1.0)
    q = over / (e + 1.0)
    # What q * (1 + e) misses, the rounding of 1 + e in it, over 1 + e: 1 - q is enough for that.
    missed = code.fma(-q, e, over - q)
    return code.fma(missed, 1.0 - q, q)


def tanh(x: Reg) -> Reg:
    """A polynomial below 0.6, 1 - 2 / (e^2x + 1) above."""
    code = x.code
    a = absolute(x)
    e = exp_normal(at_most(a + a, 20.0))
    large = 1.0 - 2.0 / (e + 1.0)
    square = a * a
    small = code.fma(a * square, horner(square, TANH), a)
    return copysign(code.select(a.compare("olt", 0.6), small, large), x)
