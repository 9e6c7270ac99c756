"""Products of bf16, two to a 32-bit lane: one instruction where the processor has it."""

from __future__ import annotations

from kernelmill.codegen import arithmetic
from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.spelling import llvm_type, vector
from kernelmill.core.dtype import F32

_BITS = (128, 256, 512)


def dot2(a: Reg, b: Reg, c: Reg) -> Reg:
    """c plus the products of the upper halves of a and b, and then of the lower ones, as bf16."""
    code, bits = a.code, 32 * a.lanes
    if "avx512bf16" in code.target.features and bits in _BITS:
        return _instruction(code, f"llvm.x86.avx512bf16.dpbf16ps.{bits}", a, b, c)
    for x, y in ((a & -0x10000, b & -0x10000), (a << 16, b << 16)):
        c = arithmetic.fma(code, x.bits_as(F32), y.bits_as(F32), c)
    return c


def _instruction(code: Code, name: str, a: Reg, b: Reg, c: Reg) -> Reg:
    kind, halves = llvm_type(c.type), vector("bfloat", 2 * c.lanes)
    code.module.declare(name, kind, [kind, halves, halves])
    x, y = (code.result(f"bitcast {word.typed} to {halves}", word.type).text for word in (a, b))
    text = f"call {kind} @{name}({c.typed}, {halves} {x}, {halves} {y})"
    return code.result(text, c.type)
