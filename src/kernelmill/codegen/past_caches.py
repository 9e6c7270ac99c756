"""Stores that go past the caches: for results so large that a cache would hold none of them when
they are read, writing in place of fetching each line, changing it and writing it back.

Such a store needs a whole, aligned vector. Where the memory is aligned is only known at the call,
so a kernel with one is generated twice (compile.py).
"""

from __future__ import annotations

from kernelmill.core.dim import mod
from kernelmill.core.target import Target
from kernelmill.kernel.ir import Kernel, Store

LEAST_BYTES = 24 << 20
"""A buffer of this size and what is read meanwhile fill the caches of a processor's cores."""

MARK = ", !nontemporal !{i32 1}"


def large_buffers(kernel: Kernel, target: Target) -> frozenset[str]:
    """Buffers that are only written, and too large for any cache."""
    if not target.is_x86:
        return frozenset()
    return frozenset(
        buffer.name
        for buffer in kernel.buffers
        if buffer.access == "out"
        and isinstance(buffer.elements, int)
        and buffer.elements * buffer.dtype.bytes >= LEAST_BYTES
    )


def fills_vectors(statement: Store, lanes: int, bytes: int, target: Target) -> bool:
    """Whether a store writes whole vector registers, aligned if its buffer is."""
    whole = lanes * bytes * 8 % target.vector_bits == 0
    plain = statement.mask is None and statement.stride == 1
    return whole and plain and mod(statement.index, lanes) == 0
