"""Register tiles: rows x vectors sums that stay in registers while k runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, bounds, floordiv, minimum, mod
from kernelmill.core.dtype import I64, DType
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, part_count, size_hint
from kernelmill.lower.emit.depth import Body, Depth, for_each_k

CHAINS = 8
"""Independent sums that two multiply-add units with four cycles latency need to stay busy."""

CHAIN = 256
"""Products that are added one after another before their sum is added to the others."""

Fetch = Callable[[int, Dims], Value]
"""`fetch(i, k)`: for A the element of row i of the tile, for B its vector number i."""


def with_prefetch(fetch: Fetch, ask: Callable[[Dims], None], every: int = 1) -> Fetch:
    """Return `fetch` that calls `ask(k)` with the first row or vector of one k out of `every`: of a
    pass over several k not all have a new line, where vectors are shorter than lines."""
    number = count()

    def fetched(i: int, k: Dims) -> Value:
        if i == 0 and next(number) % max(1, every) == 0:
            ask(k)
        return fetch(i, k)

    return fetched


@dataclass(frozen=True)
class Tile:
    """The shape of a tile, its element type, and whether a*b + c is one instruction.

    With a `unit` for groups elements of A and B are words of several numbers; see Contraction.
    `grouped`: the axes of k are groups within groups. A pass of the loop over a single axis takes
    `unrolled` k.
    """

    rows: int
    vectors: int
    lanes: int
    dtype: DType
    use_fma: bool
    unit: DotUnit = MULTIPLY_ADD
    grouped: bool = False
    unrolled: int = 1

    @property
    def count(self) -> int:
        """Number of vectors of sums."""
        return self.rows * self.vectors

    def zeros(self, builder: KernelBuilder, count: int) -> list[Value]:
        """Return that many vectors of zeros."""
        zero = 0.0 if self.dtype.is_float else 0
        return [builder.op("splat", zero, dtype=self.dtype, lanes=self.lanes)] * count

    def multiply_add(self, builder: KernelBuilder, a: Value, b: Value, c: Value) -> Value:
        """Emit a * b + c."""
        if self.unit.group > 1:
            return builder.dot(self.unit, a, b, c)
        if self.use_fma:
            return builder.op("fma", a, b, c)
        return builder.op("add", builder.op("mul", a, b), c)

    def sum_products(
        self, builder: KernelBuilder, depth: Depth, a: Fetch, b: Fetch, initial: list[Value],
        factors: Fetch | None = None,
    ) -> list[Value]:  # fmt: skip
        """Return `initial` plus the sum over k of A times B, rows by vectors in row-major order.

        A long sum in floating point is taken in parts, since the error of one chain of additions
        grows with its length. `factors` are for the sums of each index of the first axis.
        """
        nested = len(depth.axes) > 1 + depth.paired
        if nested and (self.grouped or (self.dtype.is_float and _is_long(size_hint(depth.inner)))):
            return self._sum_groups(builder, depth, a, b, initial, factors)
        part = _part(depth) if self.dtype.is_float else 0
        if not part:
            return self._sum_part(builder, depth, a, b, initial)
        even = mod(depth.stop - depth.start, part) == 0
        # With the last start known, k is known to be in range: views of A need no remainder of it.
        last = depth.stop - part if even else None
        with builder.loop(depth.start, depth.stop, part, initial, prefix="part", high=last) as loop:
            stop = loop.index + part
            if not even:
                stop = minimum(depth.stop, stop)
            here = Depth(depth.axes, loop.index, stop)
            sums = self._sum_part(builder, here, a, b, self.zeros(builder, len(initial)))
            pairs = zip(loop.carried, sums, strict=True)
            loop.carry(*(builder.op("add", total, value) for total, value in pairs))
        return list(loop.results)

    def _sum_part(
        self, builder: KernelBuilder, depth: Depth, a: Fetch, b: Fetch, initial: list[Value]
    ) -> list[Value]:
        if len(depth.axes) == 1 + depth.paired:
            return self._sum_in_sets(builder, depth, a, b, initial)

        length = self._along_last(depth)

        def step(k: Dims, sums: list[Value]) -> list[Value]:
            points = [(*k[:-1], k[-1] + i) for i in range(length)]
            return self._add(builder, points, sums, a, b)

        return for_each_k(builder, depth, initial, step, length)

    def _along_last(self, depth: Depth) -> int:
        """Return how many k of the last of several axes each pass of its loop takes."""
        return 1 if depth.paired or mod(depth.axes[-1], self.unrolled) else self.unrolled

    def _sum_groups(
        self,
        builder: KernelBuilder,
        depth: Depth,
        a: Fetch,
        b: Fetch,
        initial: list[Value],
        factors: Fetch | None,
    ) -> list[Value]:
        """Sum each index of the first axis separately, so that errors stay small."""

        def group(k: Dims, totals: list[Value]) -> list[Value]:
            sums = self._inside(k).sum_products(
                builder,
                Depth.whole(depth.axes[1:]),
                lambda i, inner: a(i, (*k, *inner)),
                lambda i, inner: b(i, (*k, *inner)),
                self.zeros(builder, len(totals)),
            )
            pairs = zip(totals, sums, strict=True)
            if factors is None:
                return [builder.op("add", *pair) for pair in pairs]
            begin = (*k, *(0 for _ in depth.axes[1:]))
            row = [factors(v, begin) for v in range(self.vectors)]
            scaled = Tile(self.rows, self.vectors, self.lanes, self.dtype, self.use_fma)
            return [
                scaled.multiply_add(builder, value, row[place % self.vectors], total)
                for place, (total, value) in enumerate(pairs)
            ]

        return for_each_k(builder, depth.first, initial, group)

    def _inside(self, k: Dims) -> Tile:
        """Return the tile that sums one group's products, with operands by the other axes."""
        return self

    def _sum_in_sets(
        self, builder: KernelBuilder, depth: Depth, a: Fetch, b: Fetch, initial: list[Value]
    ) -> list[Value]:
        count, sets = self.count, 1
        while sets * count < CHAINS:
            sets *= 2
        length = max(sets // (1 + depth.paired), self.unrolled)

        def step(length: int) -> Body:
            return lambda k, sums: self._add(builder, depth.neighbours(k, length), sums, a, b)

        run = depth.first
        whole = run.start + floordiv(run.stop - run.start, length) * length
        groups = initial + self.zeros(builder, count * (sets - 1))
        groups = for_each_k(
            builder, Depth(run.axes, run.start, whole), groups, step(length), length
        )
        sums = _add_groups(builder, groups, count)
        if whole == run.stop:
            return sums
        return for_each_k(builder, Depth(run.axes, whole, run.stop), sums, step(1))

    def _add(
        self, builder: KernelBuilder, points: list[Dims], sums: list[Value], a: Fetch, b: Fetch
    ) -> list[Value]:
        """Add the products of each k to the sums, whose sets take turns."""
        count, result = self.count, list(sums)
        for number, k in enumerate(points):
            first = number * count % len(result)
            columns = [b(v, k) for v in range(self.vectors)]
            for i in range(self.rows):
                row = builder.op("splat", a(i, k), lanes=self.lanes)
                for place, column in enumerate(columns, first + i * self.vectors):
                    result[place] = self.multiply_add(builder, row, column, result[place])
        return result


def _is_long(size: Dim) -> bool:
    """Return whether a sum of that many products is, or may be, too long for one chain."""
    most = bounds(size)[1]
    return most is None or most > CHAIN + CHAIN // 2


def _part(depth: Depth) -> int:
    """Return how many indices of the first k axis one part of a long sum has; 0: all at once."""
    if not _is_long(depth.size):
        return 0
    count = max(1, CHAIN // size_hint(depth.inner))
    # Parts of one size need no test for the end of the last.
    even = [n for n in range(count - count // 4, count + count // 2) if mod(depth.stop, n) == 0]
    return min(even, key=lambda n: abs(n - count)) if even and depth.start == 0 else count


def _add_groups(builder: KernelBuilder, groups: list[Value], count: int) -> list[Value]:
    while len(groups) > count:
        half = len(groups) // 2
        pairs = zip(groups[:half], groups[half:], strict=True)
        groups = [builder.op("add", x, y) for x, y in pairs]
    return groups


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
        self, builder: KernelBuilder, depth: Depth, a: Fetch, b: Fetch, initial: list[Value],
        factors: Fetch | None = None,
    ) -> list[Value]:  # fmt: skip
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
