"""The register tile of a unit whose vectors are blocks of two rows by two columns of sums."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmill.core.dtype import I64
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims, part_count
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.microkernel import Fetch, Tile

_TOGETHER = 3
"""Columns' vectors that are loaded at a time."""


class BlockTile(Tile):
    """Sums are blocks while k runs, and parts of rows before and after that, as of every tile; a
    vector has four of them.

    Of A `fetch(i, k)` gives the words of rows i and i + 1, for even i, and of B those of columns
    2i and 2i + 1. Of an odd number of rows the last is alone in its blocks: A has anything in place
    of the other.
    """

    @property
    def count(self) -> int:
        return self._down * self._across

    @property
    def _down(self) -> int:
        return part_count(self.rows, self.unit.rows)

    @property
    def _across(self) -> int:
        return self.vectors * self.lanes // self.unit.columns

    def sum_products(
        self,
        builder: KernelBuilder,
        depth: Depth,
        a: Fetch,
        b: Fetch,
        initial: list[Value],
        factors: Fetch | None = None,
    ) -> list[Value]:
        blocks = self._blocks(builder, initial)
        return self._rows(builder, super().sum_products(builder, depth, a, b, blocks, factors))

    def _add(
        self, builder: KernelBuilder, points: list[Dims], sums: list[Value], a: Fetch, b: Fetch
    ) -> list[Value]:
        result = list(sums)
        for number, k in enumerate(points):
            first = number * self.count % len(result)
            rows = [a(i, k) for i in range(0, self.rows, self.unit.rows)]
            for j, column in self._columns(k, b):
                for place, row in enumerate(rows):
                    at = first + place * self._across + j
                    result[at] = builder.dot(self.unit, row, column, result[at])
        return result

    def _columns(self, k: Dims, b: Fetch) -> Iterator[tuple[int, Value]]:
        """Yield numbered columns, loaded late, as registers do not hold all of them."""
        for first in range(0, self._across, _TOGETHER):
            numbers = range(first, min(first + _TOGETHER, self._across))
            yield from list(zip(numbers, [b(j, k) for j in numbers], strict=True))

    def _blocks(self, builder: KernelBuilder, rows: list[Value]) -> list[Value]:
        blocks: list[Value] = []
        for i in range(0, self.rows, 2):
            other = min(i + 1, self.rows - 1)
            for v in range(self.vectors):
                low, high = rows[i * self.vectors + v], rows[other * self.vectors + v]
                blocks += _exchanged(builder, low, high)
        return blocks

    def _rows(self, builder: KernelBuilder, blocks: list[Value]) -> list[Value]:
        rows: list[Value] = []
        for first in range(0, self.count, self._across):
            pairs = range(first, first + self._across, 2)
            both = [_exchanged(builder, *blocks[at : at + 2]) for at in pairs]
            rows += [part for side in (0, 1) for part in (pair[side] for pair in both)]
        return rows[: self.rows * self.vectors]


def _exchanged(builder: KernelBuilder, low: Value, high: Value) -> list[Value]:
    """Return the lower halves of two vectors, and the upper ones."""
    pairs = [builder.op("bitcast", each, dtype=I64, lanes=2) for each in (low, high)]
    return [
        builder.op(
            "bitcast", builder.op("interleave", *pairs, half=half), dtype=low.type.dtype, lanes=4
        )
        for half in (0, 1)
    ]
