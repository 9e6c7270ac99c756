"""The register tile: rows x vectors sums that stay in registers while k runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, bounds, floordiv, minimum, mod
from kernelmill.core.dtype import DType
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims, size_hint
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
        self,
        builder: KernelBuilder,
        depth: Depth,
        a: Fetch,
        b: Fetch,
        initial: list[Value],
        factors: Fetch | None = None,
    ) -> list[Value]:
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
