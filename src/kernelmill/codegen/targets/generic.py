"""The interface of code generation to an instruction set, and all answers with plain vectors: right
on every processor that LLVM knows."""

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
    """A target without instructions of its own: families derive from it. Registers may have any
    number of lanes; every answer has to be right for all of them."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa

    def dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        """c plus, in each lane, the products of the numbers in the words a and b, as the unit, or
        one that means the same, adds them. Of a unit that works on blocks a and b have a word for
        each row and each column."""
        return words.dot(unit, a, b, c)

    @property
    def vectors_together(self) -> int:
        """Most neighbouring vectors that `load_vectors` reads; 1: there is no such instruction."""
        return 1

    def load_vectors(self, code: Code, type: VType, address: str, count: int) -> list[Reg]:
        """Load `count` consecutive vectors, of one register each, from `address` on."""
        raise CodegenError("this processor reads one vector at a time")

    def masks_memory(self, bytes: int) -> bool:
        """Return whether one instruction loads, and one stores, some lanes of `bytes` bytes;
        otherwise LLVM writes a branch for each lane."""
        return False

    @property
    def stores_lanes_slowly(self) -> bool:
        """True if the instruction that stores some lanes takes longer than to choose and store all
        of them."""
        return False

    def tile_zero(self, code: Code, type: VType) -> Reg:
        """Return a tile of zeros. Tiles of an ISA are all its own registers, or all in memory."""
        return tiles.zero(code, type)

    def tile_load(self, type: VType, address: str, stride: Reg) -> Reg:
        """Append the load of a tile whose rows are `stride` (i64) elements apart."""
        return tiles.load(type, address, stride)

    def tile_store(self, value: Reg, address: str, stride: Reg) -> None:
        """Write the rows of a tile, `stride` (i64) elements apart."""
        tiles.store(value, address, stride)

    def tile_dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        """Append c plus the product of two tiles."""
        return tiles.dot(unit, a, b, c)

    def tiles_carried(self, values: Sequence[Reg]) -> list[Reg]:
        """Return tiles that a loop made as its next pass, or the code after it, takes them."""
        return tiles.carried(values)

    def scale(self, p: Reg, k: Reg) -> Reg | None:
        """Return p * 2^floor(k) in f32 for any k, infinities too; None without an instruction."""
        return None

    def above_floor(self, x: Reg) -> Reg | None:
        """Return x - floor(x) in f32, rounded once, 0 for infinities; None if unavailable."""
        return None

    def truncate(self, x: Reg) -> Reg | None:
        """Return f32 truncated to i32, the lowest where none is near; None if unavailable."""
        return None

    def vector_function(self, name: str, dtype: DType, accuracy: str) -> tuple[str, int] | None:
        """A vector function of libtorch_cpu by its C name for doubles, and its lanes; None: there
        is none, and the C library's is called for each lane. `accuracy`: SLEEF's "u10", ..."""
        return None

    def nontemporal_fence(self, code: Code) -> None:
        """Order non-temporal stores before later stores that publish them to other threads."""
        code.line("fence seq_cst")

    def spin_hint(self) -> tuple[str, str]:
        """Return the LLVM IR of a waiting thread's hint: a declaration and a call."""
        return "", ""
