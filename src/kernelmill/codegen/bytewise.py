"""Products of bytes, four to a 32-bit lane: one instruction where the processor has it."""

from __future__ import annotations

from kernelmill.codegen import convert
from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.spelling import llvm_type
from kernelmill.core.dtype import I8, I16, U8, DType
from kernelmill.kernel.ir import VType

_PAIRS = {
    512: "llvm.x86.avx512.pmaddw.d.512",
    256: "llvm.x86.avx2.pmadd.wd",
    128: "llvm.x86.sse2.pmadd.wd",
}
"""By bits of a vector: products of 16-bit numbers, neighbours added."""


def dot4(a: Reg, b: Reg, c: Reg) -> Reg:
    """c plus the four products of the bytes of a, unsigned, and of b, signed, in each lane."""
    code, bits = a.code, 32 * a.lanes
    target = code.module.target
    if target.is_x86 and bits in _PAIRS and bits <= target.vector_bits:
        if _has_dot(code, bits):
            return _call(code, f"llvm.x86.avx512.vpdpbusd.{bits}", c, a, b)
        return c + _pairs(a, b, bits)
    for byte in range(4):
        c = c + _byte(a, byte, U8) * _byte(b, byte, I8)
    return c


def _has_dot(code: Code, bits: int) -> bool:
    features = code.module.target.features
    return "avx512vnni" in features or ("avxvnni" in features and bits <= 256)


def _pairs(a: Reg, b: Reg, bits: int) -> Reg:
    """The sums of four by way of 16 bits: the even bytes and the odd ones. Nothing saturates."""
    even, odd = a & 0x00FF00FF, a.logical_shift(8) & 0x00FF00FF
    halves = convert.bitcast(b, VType(I16, 2 * b.lanes))
    low, high = (halves << 8) >> 8, halves >> 8
    total: Reg | None = None
    for unsigned, signed in ((even, low), (odd, high)):
        wide = convert.bitcast(unsigned, VType(I16, 2 * a.lanes))
        sums = _call_pairs(a.code, _PAIRS[bits], wide, signed, a.type)
        total = sums if total is None else total + sums
    assert total is not None
    return total


def _byte(x: Reg, number: int, dtype: DType) -> Reg:
    """One byte of each lane, sign or zero extended."""
    if dtype == U8:
        return x.logical_shift(8 * number) & 0xFF
    return (x << (24 - 8 * number)) >> 24


def _call(code: Code, name: str, *arguments: Reg) -> Reg:
    kind = llvm_type(arguments[0].type)
    code.module.declare(name, kind, [kind] * len(arguments))
    return code.call(name, arguments[0].type, *arguments)


def _call_pairs(code: Code, name: str, a: Reg, b: Reg, result: VType) -> Reg:
    code.module.declare(name, llvm_type(result), [llvm_type(a.type)] * 2)
    return code.call(name, result, a, b)
