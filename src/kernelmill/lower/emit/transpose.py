"""Square blocks turned round in registers."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value


def transpose(builder: KernelBuilder, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square block: n vectors of n lanes each, n a power of two.

    Interleaving row i with row i + n/2 rotates the bits of an element's (row, column) number by
    one; after log2(n) rounds rows and columns have changed places.
    """
    count = len(rows)
    vectors = list(rows)
    half = count // 2
    for _ in range(count.bit_length() - 1):
        turned: list[Value] = []
        for low, high in zip(vectors[:half], vectors[half:], strict=True):
            turned += [builder.op("interleave", low, high, half=h) for h in (0, 1)]
        vectors = turned
    return vectors
