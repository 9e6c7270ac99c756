"""All answers with plain vectors: right on every processor that LLVM knows."""

from __future__ import annotations

from kernelmill.codegen import arithmetic
from kernelmill.codegen.code import Code, Reg
from kernelmill.core.dtype import F32, I8, U8, DType
from kernelmill.core.isa import Isa


class Generic:
    """A target without instructions of its own."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa

    def dot_bytes(self, a: Reg, b: Reg, c: Reg) -> Reg:
        for number in range(4):
            c = c + _byte(a, number, U8) * _byte(b, number, I8)
        return c

    def dot_bf16(self, a: Reg, b: Reg, c: Reg) -> Reg:
        for x, y in ((a & -0x10000, b & -0x10000), (a << 16, b << 16)):
            c = arithmetic.fma(a.code, x.bits_as(F32), y.bits_as(F32), c)
        return c

    def scale(self, p: Reg, k: Reg) -> Reg | None:
        return None

    def above_floor(self, x: Reg) -> Reg | None:
        return None

    def vector_function(self, name: str, dtype: DType, accuracy: str) -> tuple[str, int] | None:
        return None

    def streaming_fence(self, code: Code) -> None:
        code.line("fence seq_cst")

    def spin_hint(self) -> tuple[str, str]:
        return "", ""


def _byte(x: Reg, number: int, dtype: DType) -> Reg:
    """One byte of each lane, sign or zero extended."""
    if dtype == U8:
        return x.logical_shift(8 * number) & 0xFF
    return (x << (24 - 8 * number)) >> 24
