"""Pieces that the functions are built of: polynomials, clamps, scaling, rare paths.

Everything here keeps NaN: a comparison that NaN fails picks the argument itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.spelling import llvm_type, round_f32
from kernelmill.codegen.vectors import concat, reduce, slice_lanes
from kernelmill.core.dtype import F32, I16, I32
from kernelmill.kernel.ir import VType

MAGIC = 12582912.0
"""1.5 * 2^23: adding it to a small f32 rounds that to an integer, held in the sum's low bits."""

_ONE = 0x3F800000
_FOUND_LANES = 16
_FOUND = VType(F32, _FOUND_LANES)
_TO_FLOOR = 9
"""Of a reduction: rounding down to integers, and no exception for a result that is not exact."""


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
    if has_scalef(code, p.lanes):
        return scalef(p, k)
    low = k.compare("olt", -124.0)
    start = code.select(low, shifted.bits_as(I32).like(_ONE + (63 << 23)), _ONE - (1 << 23))
    first = ((shifted.bits_as(I32) << 23) + start).bits_as(F32)
    second = code.select(low, p.like(2.0**-63), 2.0)
    return (p * first) * second


def power_of_two(shifted: Reg, less: int = 0) -> Reg:
    """2^(k - less), which must be in f32's normal range."""
    return ((shifted.bits_as(I32) << 23) + (_ONE - (less << 23))).bits_as(F32)


def has_scalef(code: Code, lanes: int) -> bool:
    """Whether there are AVX-512's instructions on exponents."""
    return code.target.is_x86 and code.target.vector_bits == 512 and lanes % _FOUND_LANES == 0


def scalef(p: Reg, k: Reg) -> Reg:
    """AVX-512's instruction for p * 2^floor(k), right for any k, infinities among them."""
    code, kind = p.code, llvm_type(_FOUND)
    name = "llvm.x86.avx512.mask.scalef.ps.512"
    code.module.declare(name, kind, [kind, kind, kind, "i16", "i32 immarg"])
    whole, mode = _whole_and_mode(code)
    return _joined([
        code.call(name, _FOUND, a, k_part, a, whole, mode)
        for start in range(0, p.lanes, _FOUND_LANES)
        for a, k_part in [(_piece(p, start), _piece(k, start))]
    ])  # fmt: skip


def above_floor(x: Reg) -> Reg:
    """AVX-512's instruction for x - floor(x), rounded once, and 0 for infinities."""
    code, kind = x.code, llvm_type(_FOUND)
    name = "llvm.x86.avx512.mask.reduce.ps.512"
    code.module.declare(name, kind, [kind, "i32 immarg", kind, "i16", "i32 immarg"])
    whole, mode = _whole_and_mode(code)
    down = code.const(VType(I32), _TO_FLOOR)
    return _joined([
        code.call(name, _FOUND, a, down, a, whole, mode)
        for start in range(0, x.lanes, _FOUND_LANES)
        for a in [_piece(x, start)]
    ])  # fmt: skip


def _whole_and_mode(code: Code) -> tuple[Reg, Reg]:
    """The mask of all lanes, and the rounding that is set."""
    return code.const(VType(I16), -1), code.const(VType(I32), 4)


def _joined(parts: list[Reg]) -> Reg:
    while len(parts) > 1:
        pairs = [concat(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _piece(value: Reg, start: int) -> Reg:
    return value if value.lanes == _FOUND_LANES else slice_lanes(value, start, _FOUND_LANES)


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
