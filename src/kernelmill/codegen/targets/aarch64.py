"""AArch64: NEON with products of bytes and of bf16.

Source of names and semantics: Arm Architecture Reference Manual for A-profile, "A64 SIMD and
floating-point instructions"; LLVM's IntrinsicsAArch64.td.
"""

from __future__ import annotations

from kernelmill.codegen.code import Code, Reg, llvm_type, suffix, vector
from kernelmill.codegen.targets.generic import Generic
from kernelmill.codegen.vectors import in_pieces
from kernelmill.core.dtype import BF16
from kernelmill.core.target.dot_units import BFDOT, BFMMLA, SDOT, USDOT, DotUnit
from kernelmill.kernel.ir import VType

_LANES = 4
_ROWS = (SDOT, USDOT, BFDOT)
"""The units that are one instruction, of those that have rows of sums."""

_WHOLE_SYSTEM = 15
"""The one scope that an instruction barrier has."""


class AArch64(Generic):
    """Any level. Vectors are of 128 bits, also on processors with SVE."""

    def dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        if unit.on_blocks and unit in self.isa.block_units:
            return _dot(unit, a, b, c)
        has = unit in _ROWS and unit.there(self.isa.features, self.isa.vector_bits)
        if not has or c.lanes % _LANES:
            return super().dot(unit, a, b, c)
        return in_pieces(lambda *words: _dot(unit, *words), _LANES, a, b, c)

    @property
    def vectors_together(self) -> int:
        return 4

    def load_vectors(self, code: Code, type: VType, address: str, count: int) -> list[Reg]:
        one = llvm_type(type)
        all = f"{{ {', '.join([one] * count)} }}"
        name = f"llvm.aarch64.neon.ld1x{count}.{suffix(type)}.p0"
        code.module.declare(name, all, ["ptr"])
        found = code.hoisted(f"call {all} @{name}(ptr {address})", -1)
        return [code.result(f"extractvalue {all} {found}, {i}", type) for i in range(count)]

    def nontemporal_fence(self, code: Code) -> None:
        """Do nothing: non-temporal stores are ordered like all others."""

    def spin_hint(self) -> tuple[str, str]:
        """Return a barrier that delays the thread some cycles: `yield` does nothing on most."""
        return (
            "declare void @llvm.aarch64.isb(i32 immarg)",
            f"call void @llvm.aarch64.isb(i32 {_WHOLE_SYSTEM})",
        )


def _dot(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    count, kind, short = (8, "bfloat", "bf16") if unit.b == BF16 else (16, "i8", "i8")
    code, sums, operand = c.code, llvm_type(c.type), vector(kind, count)
    name = f"llvm.aarch64.neon.{unit.name}"
    if unit != BFMMLA:
        name = f"{name}.{suffix(c.type)}.v{count}{short}"
    code.module.declare(name, sums, [sums, operand, operand])
    # A lane of a vector can be the last operand alone, or of usdot either.
    turned = not unit.on_blocks and unit != USDOT
    first, last = (b, a) if turned else (a, b)
    x, y = (
        code.result(f"bitcast {words.typed} to {operand}", words.type).text
        for words in (first, last)
    )
    return code.result(f"call {sums} @{name}({c.typed}, {operand} {x}, {operand} {y})", c.type)
