"""Pieces that the functions are built of: polynomials, clamps, scaling, rare paths.

Everything here keeps NaN: a comparison that NaN fails picks the argument itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.codegen.code import Reg
from kernelmill.codegen.llvm_types import llvm_type, round_f32
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
