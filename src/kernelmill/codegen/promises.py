"""Promises to LLVM about a kernel's memory, the only place where these are made, and non-temporal
stores.

An output `over` an input may be the same memory, so nothing is promised of either but that no one
writes through the input's own address. Every other buffer is memory of its own where anything is
written, and what is only read stays as it is while the kernel runs; of arguments that are one
memory, none of which is written, that is true as well.

Non-temporal stores: to buffers that the kernel marks so. They write past the caches, in place of
fetching each line, changing it and writing it back.

Such a store needs a whole, aligned vector. Where the memory is aligned is only known at the call,
so a kernel with one is generated twice (compile.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import mod
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.ir import SCRATCH, Kernel, Store


@dataclass(frozen=True)
class Promises:
    """Of one buffer.

    alone    what is written here is read and written through this address alone, and what is
             read here is not written through another one
    readonly nothing is written through this address
    aligned  the address is a multiple of a vector register, and stores may go past the caches
    """

    alone: bool
    readonly: bool
    aligned: bool = False

    @property
    def constant(self) -> bool:
        """True if a load gives the same whenever it is done: LLVM may move it past all stores."""
        return self.alone and self.readonly

    @property
    def attributes(self) -> str:
        """Attributes of the parameter that holds the address."""
        return f"{' noalias' if self.alone else ''}{' readonly' if self.readonly else ''}"


def promises(kernel: Kernel, aligned: bool = False) -> Mapping[str, Promises]:
    """Return the promises by the names of buffers, and of scratch. `aligned`: nontemporal buffers
    are aligned."""
    shared = {
        name for buffer in kernel.buffers if buffer.over for name in (buffer.name, *buffer.over)
    }
    found = {
        buffer.name: Promises(
            buffer.name not in shared, buffer.access == "in", aligned and buffer.nontemporal
        )
        for buffer in kernel.buffers
    }
    return {**found, SCRATCH: Promises(alone=True, readonly=False)}


MARK = ", !nontemporal !{i32 1}"


def fills_vectors(statement: Store, lanes: int, bytes: int, isa: Isa) -> bool:
    """Return whether a store writes whole vector registers, aligned if its buffer is."""
    whole = lanes * bytes * 8 % isa.vector_bits == 0
    plain = statement.mask is None and statement.stride == 1
    return whole and plain and mod(statement.index, lanes) == 0
