"""Dot units in plain vectors: the meaning of core/target/dot_units.py, number by number."""

from __future__ import annotations

from dataclasses import replace

from kernelmill.codegen import arithmetic, vectors
from kernelmill.codegen.code import Reg
from kernelmill.core.dtype import F32, F64, I32, I64, U8, DType
from kernelmill.core.target.dot_units import DotUnit, Sums
from kernelmill.kernel.ir import VType

_LEAST = 2.0**-126
_SCALE = 2.0**24
_LAST_OF_F32 = 1 << 29
"""The last bit of an f32 in an f64."""


def dot(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    """Return c plus the products of the numbers in the words `a` and `b`, in each lane."""
    if unit.on_blocks:
        return _blocks(unit, a, b, c)
    if unit.sums == Sums.WRAPPING:
        return add_bytes(unit, a, b, c)
    if unit.sums == Sums.TO_ODD:
        low, high = (flushed(bf16(a, half) * bf16(b, half)) for half in (0, 1))
        return _sum_to_odd(flushed(c), _sum_to_odd(low, high))
    assert unit.sums == Sums.UPPER_FIRST, unit.name
    c = flushed(c)
    for half in (1, 0):
        c = add_product(bf16(a, half), bf16(b, half), c)
    return c


def _blocks(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    """Compute blocks by words of 32 bits for each of the sums, the first of a word first."""
    halves = unit.word.bits // I32.bits
    narrow = replace(unit, group=unit.group // halves, rows=1, columns=0)
    left, right = (arithmetic.bitcast(x, VType(I32, x.lanes * halves)) for x in (a, b))
    places = [divmod(place, unit.columns) for place in range(c.lanes)]
    for half in range(halves):
        x, y = (
            vectors.shuffle(words, words, [place[side] * halves + half for place in places])
            for side, words in enumerate((left, right))
        )
        c = dot(narrow, x, y, c)
    return c


def add_bytes(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    """Return c plus the products of integers."""
    for number in range(unit.group):
        c = c + _integer(a, number, unit.a) * _integer(b, number, unit.b)
    return c


def _integer(x: Reg, number: int, dtype: DType) -> Reg:
    """Extract one number of each lane, sign or zero extended."""
    if dtype == U8:
        return x.logical_shift(8 * number) & 0xFF
    return (x << (I32.bits - dtype.bits * (number + 1))) >> (I32.bits - dtype.bits)


def bf16(x: Reg, half: int) -> Reg:
    """Return the lower (0) or upper (1) half of each word as f32, denormals as zeros."""
    return flushed((x & -0x10000 if half else x << 16).bits_as(F32))


def flushed(x: Reg) -> Reg:
    """Replace denormals by zeros of their sign."""
    return _zero_where(x.code.absolute(x).compare("olt", _LEAST), x)


def add_product(x: Reg, y: Reg, c: Reg) -> Reg:
    """Return x*y + c with one rounding; none of them, nor the result, is denormal.

    Whether a result is too small is asked of one 2^24 times as large, which is rounded to as many
    bits as it would be if exponents had no end. Where that overflows the terms are so large that
    they cannot cancel to anything small but zero.
    """
    total = arithmetic.fma(c.code, x, y, c)
    scaled = arithmetic.fma(c.code, x * _SCALE, y, c * _SCALE)
    return _zero_where(c.code.absolute(scaled).compare("olt", _LEAST * _SCALE), total)


def _sum_to_odd(x: Reg, y: Reg) -> Reg:
    """Return x + y, at the neighbour in f32 whose last bit is set where inexact; none denormal.

    The sum in f64 becomes odd by its error, which is Knuth's, and then one of fewer bits.
    """
    code = x.code
    x, y = (code.convert("fpext", term, F64) for term in (x, y))
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)
    away = error.compare("ogt", 0.0) ^ total.compare("olt", 0.0)
    bits = total.bits_as(I64)
    moved = bits + code.select(away, bits.like(1), bits.like(-1))
    inexact = error.compare("one", 0.0) & (bits & 1).compare("eq", 0)
    bits = code.select(inexact, moved, bits)
    beyond = (bits & _LAST_OF_F32 - 1).compare("ne", 0)
    odd = (bits & -_LAST_OF_F32) | code.select(beyond, bits.like(_LAST_OF_F32), 0)
    return flushed(code.convert("fptrunc", odd.bits_as(F64), F32))


def _zero_where(condition: Reg, x: Reg) -> Reg:
    return x.code.select(condition, arithmetic.copysign(x.like(0.0), x), x)
