"""All answers with plain vectors: right on every processor that LLVM knows."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.targets import tiles, words
from kernelmill.core.dtype import DType
from kernelmill.core.errors import CodegenError
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.ir import VType


class Generic:
    """A target without instructions of its own."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa

    def dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        return words.dot(unit, a, b, c)

    @property
    def vectors_together(self) -> int:
        return 1

    def load_vectors(self, code: Code, type: VType, address: str, count: int) -> list[Reg]:
        raise CodegenError("this processor reads one vector at a time")

    def masks_memory(self, bytes: int) -> bool:
        return False

    @property
    def stores_lanes_slowly(self) -> bool:
        return False

    def tile_zero(self, code: Code, type: VType) -> Reg:
        return tiles.zero(code, type)

    def tile_load(self, type: VType, address: str, stride: Reg) -> Reg:
        return tiles.load(type, address, stride)

    def tile_store(self, value: Reg, address: str, stride: Reg) -> None:
        tiles.store(value, address, stride)

    def tile_dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        return tiles.dot(unit, a, b, c)

    def tiles_carried(self, values: Sequence[Reg]) -> list[Reg]:
        return tiles.carried(values)

    def scale(self, p: Reg, k: Reg) -> Reg | None:
        return None

    def above_floor(self, x: Reg) -> Reg | None:
        return None

    def vector_function(self, name: str, dtype: DType, accuracy: str) -> tuple[str, int] | None:
        return None

    def nontemporal_fence(self, code: Code) -> None:
        code.line("fence seq_cst")

    def spin_hint(self) -> tuple[str, str]:
        return "", ""
