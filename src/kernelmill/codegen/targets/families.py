"""The interface of code generation to an instruction set, and the choice of a family's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Protocol

from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.targets.aarch64 import AArch64
from kernelmill.codegen.targets.generic import Generic
from kernelmill.codegen.targets.x86 import X86
from kernelmill.core.dtype import DType
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.ir import VType


class Answers(Protocol):
    """Instructions of one ISA. Registers may have any number of lanes; every answer has to be
    right for all of them."""

    def dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        """c plus, in each lane, the products of the numbers in the words a and b, as the unit, or
        one that means the same, adds them. Of a unit that works on blocks a and b have a word for
        each row and each column."""
        ...

    @property
    def vectors_together(self) -> int:
        """Most neighbouring vectors that `load_vectors` reads; 1: there is no such instruction."""
        ...

    def load_vectors(self, code: Code, type: VType, address: str, count: int) -> list[Reg]:
        """Load `count` consecutive vectors, of one register each, from `address` on."""
        ...

    def masks_memory(self, bytes: int) -> bool:
        """Return whether one instruction loads, and one stores, some lanes of `bytes` bytes;
        otherwise LLVM writes a branch for each lane."""
        ...

    @property
    def stores_lanes_slowly(self) -> bool:
        """True if the instruction that stores some lanes takes longer than to choose and store all
        of them."""
        ...

    def tile_zero(self, code: Code, type: VType) -> Reg:
        """Return a tile of zeros. Tiles of an ISA are all its own registers, or all in memory."""
        ...

    def tile_load(self, type: VType, address: str, stride: Reg) -> Reg:
        """Append the load of a tile whose rows are `stride` (i64) elements apart."""
        ...

    def tile_store(self, value: Reg, address: str, stride: Reg) -> None:
        """Write the rows of a tile, `stride` (i64) elements apart."""
        ...

    def tile_dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        """Append c plus the product of two tiles."""
        ...

    def tiles_carried(self, values: Sequence[Reg]) -> list[Reg]:
        """Return tiles that a loop made as its next pass, or the code after it, takes them."""
        ...

    def scale(self, p: Reg, k: Reg) -> Reg | None:
        """Return p * 2^floor(k) in f32 for any k, infinities too; None without an instruction."""
        ...

    def above_floor(self, x: Reg) -> Reg | None:
        """Return x - floor(x) in f32, rounded once, 0 for infinities; None if unavailable."""
        ...

    def vector_function(self, name: str, dtype: DType, accuracy: str) -> tuple[str, int] | None:
        """A vector function of libtorch_cpu by its C name for doubles, and its lanes; None: there
        is none, and the C library's is called for each lane. `accuracy`: SLEEF's "u10", ..."""
        ...

    def nontemporal_fence(self, code: Code) -> None:
        """Order non-temporal stores before later stores that publish them to other threads."""
        ...

    def spin_hint(self) -> tuple[str, str]:
        """Return the LLVM IR of a waiting thread's hint: a declaration and a call."""
        ...


_FAMILIES = {"x86_64": X86, "aarch64": AArch64}


@cache
def answers(isa: Isa) -> Answers:
    """Return the code generation of this instruction set."""
    return _FAMILIES.get(isa.family, Generic)(isa)


def spin_hint(isa: Isa) -> tuple[str, str]:
    """Return the LLVM IR of a waiting thread's hint: a declaration and a call."""
    return answers(isa).spin_hint()
