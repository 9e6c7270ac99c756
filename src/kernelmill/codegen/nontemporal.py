"""Non-temporal stores: to buffers that the kernel marks so. They write past the caches, in place of
fetching each line, changing it and writing it back.

Such a store needs a whole, aligned vector. Where the memory is aligned is only known at the call,
so a kernel with one is generated twice (compile.py).
"""

from __future__ import annotations

from kernelmill.core.dim import mod
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.ir import Store

MARK = ", !nontemporal !{i32 1}"


def fills_vectors(statement: Store, lanes: int, bytes: int, isa: Isa) -> bool:
    """Return whether a store writes whole vector registers, aligned if its buffer is."""
    whole = lanes * bytes * 8 % isa.vector_bits == 0
    plain = statement.mask is None and statement.stride == 1
    return whole and plain and mod(statement.index, lanes) == 0
