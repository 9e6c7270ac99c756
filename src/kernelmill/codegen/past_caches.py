"""Stores that go past the caches: for results so large that a cache would hold none of them when
they are read, writing in place of fetching each line, changing it and writing it back.

Such a store needs a whole, aligned vector. Where the memory is aligned is only known at the call,
so a kernel with one is generated twice (compile.py).
"""

from __future__ import annotations

from kernelmill.core.dim import mod
from kernelmill.core.isa import STREAMING_BYTES, Isa
from kernelmill.kernel.ir import Kernel, Store

MARK = ", !nontemporal !{i32 1}"


def large_buffers(kernel: Kernel, isa: Isa) -> frozenset[str]:
    """Buffers that are only written, and too large for any cache."""
    if not isa.has_streaming:
        return frozenset()
    return frozenset(
        buffer.name
        for buffer in kernel.buffers
        if buffer.access == "out"
        and isinstance(buffer.elements, int)
        and buffer.elements * buffer.dtype.bytes >= STREAMING_BYTES
    )


def fills_vectors(statement: Store, lanes: int, bytes: int, isa: Isa) -> bool:
    """Whether a store writes whole vector registers, aligned if its buffer is."""
    whole = lanes * bytes * 8 % isa.vector_bits == 0
    plain = statement.mask is None and statement.stride == 1
    return whole and plain and mod(statement.index, lanes) == 0
