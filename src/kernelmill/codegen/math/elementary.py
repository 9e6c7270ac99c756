"""Elementary functions on f32. exp and its relatives: 2^k * e^r with k an integer and |r| <=
ln(2)/2; logarithms: x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); sin and cos.

sin and cos of f32: x = k * pi/2 + r, and a polynomial in r for either of them.

pi/2 in three f32 parts (Cody and Waite, 1980) is enough up to 2^15; larger arguments, which no
model has, go to a library function that knows more digits of pi.

Pieces that the functions are built of: polynomials, clamps, scaling, rare paths.

Everything here keeps NaN: a comparison that NaN fails picks the argument itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernelmill.codegen.code import Reg, llvm_type, round_f32
from kernelmill.codegen.math import vector_libm
from kernelmill.codegen.math.coefficients import COS, EXP, EXP2, EXPM1, LOG, LOG2, LOG10, SIN, TANH
from kernelmill.codegen.targets import answers
from kernelmill.codegen.vectors import reduce
from kernelmill.core.dtype import F32, I32

MAGIC = 12582912.0
"""1.5 * 2^23: adding it to a small f32 rounds that to an integer, held in the sum's low bits."""

_ONE = 0x3F800000


def horner(x: Reg, coefficients: Sequence[float]) -> Reg:
    """The polynomial with these coefficients, from the constant on."""
    total = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = x.code.fma(total, x, coefficient)
    return total


def at_most(x: Reg, limit: float) -> Reg:
    """min(x, limit) in one instruction, with NaN kept."""
    bound = x.like(limit)
    return x.code.select(bound.compare("olt", x), bound, x)


def at_least(x: Reg, limit: float) -> Reg:
    """max(x, limit) in one instruction, with NaN kept."""
    bound = x.like(limit)
    return x.code.select(bound.compare("ogt", x), bound, x)


def copysign(magnitude: Reg, sign: Reg) -> Reg:
    return magnitude.code.intrinsic("copysign", magnitude, sign)


def absolute(x: Reg) -> Reg:
    return x.code.absolute(x)


def two_parts(value: float) -> tuple[float, float]:
    """`value` as the sum of two f32 numbers."""
    high = round_f32(value)
    return high, round_f32(value - high)


def rounded(x: Reg, factor: float) -> tuple[Reg, Reg]:
    """k = x * factor rounded to an integer, as a float and as the sum with MAGIC."""
    shifted = x.code.fma(x, factor, MAGIC)
    return shifted - MAGIC, shifted


def scaled(p: Reg, k: Reg, shifted: Reg) -> Reg:
    """p * 2^k for p in [0.5, 2] and k in [-151, 128], rounded once even where it is denormal."""
    code = p.code
    by_instruction = answers(code.isa).scale(p, k)
    if by_instruction is not None:
        return by_instruction
    low = k.compare("olt", -124.0)
    start = code.select(low, shifted.bits_as(I32).like(_ONE + (63 << 23)), _ONE - (1 << 23))
    first = ((shifted.bits_as(I32) << 23) + start).bits_as(F32)
    second = code.select(low, p.like(2.0**-63), 2.0)
    return (p * first) * second


def power_of_two(shifted: Reg, less: int = 0) -> Reg:
    """2^(k - less), which must be in f32's normal range."""
    return ((shifted.bits_as(I32) << 23) + (_ONE - (less << 23))).bits_as(F32)


def rarely(condition: Reg, usual: Reg, rare: Callable[[], Reg]) -> Reg:
    """`rare()` in the lanes where the condition holds; its code is jumped over when there is none.

    The other lanes keep `usual`, so a lane's value does not depend on its neighbours.
    """
    code = usual.code
    some = reduce("reduce_or", condition)
    slow, done = code.new_block("rare"), code.new_block("done")
    before = code.label
    code.line(f"br {some.typed}, label %{slow.label}, label %{done.label}, !prof !1")
    code.place(slow)
    mixed = code.select(condition, rare(), usual)
    code.line(f"br label %{done.label}")
    after = code.label
    code.place(done)
    kind = llvm_type(usual.type)
    edges = f"[ {usual.text}, %{before} ], [ {mixed.text}, %{after} ]"
    return code.result(f"phi {kind} {edges}", usual.type)


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


def exp2(x: Reg) -> Reg:
    """2^x, from the integer below x on."""
    by_instruction = _exp2_by_instruction(x)
    if by_instruction is not None:
        return by_instruction
    x = at_least(at_most(x, 128.5), -151.0)
    k = x.code.intrinsic("floor", x)
    return scaled(horner(x - k, (1.0, *EXP2)), k, k + MAGIC)


def exp2_normal(x: Reg) -> Reg:
    """2^x for x in [-126, 127], where no result is denormal."""
    by_instruction = _exp2_by_instruction(x)
    if by_instruction is not None:
        return by_instruction
    k, shifted = rounded(x, 1.0)
    return _exp_of_reduced((x - k) * math.log(2)) * power_of_two(shifted)


def _exp2_by_instruction(x: Reg) -> Reg | None:
    part = answers(x.code.isa).above_floor(x)
    return None if part is None else answers(x.code.isa).scale(horner(part, (1.0, *EXP2)), x)


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
    e = exp2_normal(at_most(a * (2 * _LOG2E), 29.0))
    large = 1.0 - 2.0 / (e + 1.0)
    square = a * a
    small = code.fma(a * square, horner(square, TANH), a)
    return copysign(code.select(a.compare("olt", 0.6), small, large), x)


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


_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""pi/2 as a sum of f32 numbers, each the nearest to what the ones before leave."""
_TWO_OVER_PI = 0.6366197723675814
_LARGE = 2.0**15


def _reduced_angle(a: Reg) -> tuple[Reg, Reg]:
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
    r, k = _reduced_angle(a)
    sign = x.bits_as(I32) & -0x80000000
    usual = (_sine_or_cosine(r, k).bits_as(I32) ^ sign).bits_as(F32)
    return rarely(a.compare("ogt", _LARGE), usual, lambda: vector_libm.call("sin", [x]))


def cos(x: Reg) -> Reg:
    """The cosine of an angle in radians."""
    a = absolute(x)
    r, k = _reduced_angle(a)
    usual = _sine_or_cosine(r, k + 1)
    return rarely(a.compare("ogt", _LARGE), usual, lambda: vector_libm.call("cos", [x]))
