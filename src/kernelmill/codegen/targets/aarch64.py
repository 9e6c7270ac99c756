"""AArch64: NEON with products of bytes.

Source of names and semantics: Arm Architecture Reference Manual for A-profile, "A64 SIMD and
floating-point instructions"; LLVM's IntrinsicsAArch64.td.
"""

from __future__ import annotations

from kernelmill.codegen import convert
from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.llvm_types import llvm_type
from kernelmill.codegen.targets.generic import Generic
from kernelmill.codegen.vectors import in_pieces
from kernelmill.core.dot_units import SDOT, USDOT, DotUnit
from kernelmill.core.dtype import I8, I32
from kernelmill.kernel.ir import VType

_LANES = 4
_SUMS = VType(I32, _LANES)
_BYTES = VType(I8, 4 * _LANES)
_WHOLE_SYSTEM = 15
"""The one scope that an instruction barrier has."""


class AArch64(Generic):
    """Any level. Vectors are of 128 bits, also on processors with SVE."""

    def dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        has = unit in (SDOT, USDOT) and unit.there(self.isa.features, self.isa.vector_bits)
        if not has or c.lanes % _LANES:
            return super().dot(unit, a, b, c)
        return in_pieces(lambda *words: _dot_bytes(unit, *words), _LANES, a, b, c)

    def nontemporal_fence(self, code: Code) -> None:
        """Stores past the caches are ordered like all others."""

    def spin_hint(self) -> tuple[str, str]:
        """A barrier that holds the thread up for some cycles: `yield` does nothing on most."""
        return (
            "declare void @llvm.aarch64.isb(i32 immarg)",
            f"call void @llvm.aarch64.isb(i32 {_WHOLE_SYSTEM})",
        )


def _dot_bytes(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    name, code = f"llvm.aarch64.neon.{unit.name}.v4i32.v16i8", c.code
    sums, bytes = llvm_type(_SUMS), llvm_type(_BYTES)
    code.module.declare(name, sums, [sums, bytes, bytes])
    return code.call(name, _SUMS, c, *(convert.bitcast(words, _BYTES) for words in (a, b)))
