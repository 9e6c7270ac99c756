"""The register tile whose rows of A are read in vectors along k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from kernelmill.core.dataclass import dataclass
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.microkernel import Fetch, Tile


@dataclass(frozen=True, kw_only=True)
class LaneTile(Tile):
    """A register tile for processors whose multiply-add takes one lane of a vector for all lanes.

    `along(i, k)` are the elements of row i at k and its neighbours along the last axis of k, a
    vector of them. `unrolled` is a multiple of the lanes.
    """

    along: Fetch

    def _inside(self, k: Dims) -> Tile:
        return replace(self, along=lambda i, inner: self.along(i, (*k, *inner)))

    def _add(
        self, builder: KernelBuilder, points: list[Dims], sums: list[Value], a: Fetch, b: Fetch
    ) -> list[Value]:
        return super()._add(builder, points, sums, self._elements(builder, points, a), b)

    def _elements(self, builder: KernelBuilder, points: list[Dims], a: Fetch) -> Fetch:
        """Return lanes of vectors, single elements where the points fill no vector."""
        whole = len(points) // self.lanes * self.lanes
        numbers = {k: number for number, k in enumerate(points)}

        @cache
        def vector(i: int, first: int) -> Value:
            return self.along(i, points[first])

        def fetch(i: int, k: Dims) -> Value:
            number = numbers[k]
            if number >= whole:
                return a(i, k)
            lane = number % self.lanes
            return builder.op("extract", vector(i, number - lane), lane)

        return fetch


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
