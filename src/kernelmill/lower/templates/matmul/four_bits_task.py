"""Tasks of products with four-bit numbers: their base class, and tasks that multiply floats.

One logical instruction extracts a number q in place, and one converts it to a float: q times a
power of two, by which A's number was divided before. Pairs of bf16 for dot units are 1 + q / 16,
made by putting q's bits into the fraction of 1.0. The product is

    sum of a * (q * s + o) = s * sum of a * q + o * sum of a

for a group of k with the same s and o. With pairs, sum of a * q is 16 times the sum of
a * (1 + q / 16), less 16 times that of a. Sums of a over each group are computed once in each task.
If they are not finite, or so small that a part may be lost, each element of B is dequantised and
multiplied in f32.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, floordiv
from kernelmill.core.dtype import BF16, F32, I32
from kernelmill.core.target.dot_units import WORDS_OF_16, DotUnit
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import part_count
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.emit.microkernel import CHAINS, Tile
from kernelmill.lower.emit.packed import panel_index
from kernelmill.lower.emit.pieces import Magnitudes
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.spec import Contraction, FourBitB
from kernelmill.lower.templates.matmul.tile_schedule import TileSchedule
from kernelmill.lower.weights.four_bits import WORD, bit_of

_LEAST = 2.0**-100
"""Least magnitude of which a 2^24th is exact. Products of bf16 with 1 to 2 are then multiples of
2^-111, so that no sum is denormal."""

_AHEAD_BYTES = 4096
"""Prefetch distance of words."""

_ONES, _MASK, _FRACTION = 0x3F803F80, 0x00780078, 3
"""For pairs of bf16: 1.0 in each, the bits of a number in its fraction, and the lowest of these
bits."""

_SIGN_BIT = 28
"""The lowest bit of the number that has the bit of a word's sign: it is shifted down."""


@dataclass(frozen=True, kw_only=True)
class FourBitTiles(TileSchedule):
    """All rows of A by panels of words. A tile is all rows of C by a panel's columns.

    run   k whose products are added one after another
    unit  what multiplies A with the numbers of words: floats one by one, pairs of bf16, or pairs of
          integers that a run's numbers of A are made into
    """

    run: int
    unit: DotUnit

    known_rows = True

    @property
    def in_integers(self) -> bool:
        """True if A's numbers are converted to integers."""
        return self.unit == WORDS_OF_16


@dataclass(frozen=True)
class Scratch:
    """The offsets of regions in scratch, in numbers of 32 bits, after the sums of a tile.

    runs     of each row what is known of its runs, `facts` numbers for each
    listed   of each row a number for each of its words, where A's are integers
    numbers  of each row, `row` numbers for each, A's: f32, pairs of bf16, or pairs of integers
    end      how much there is
    """

    runs: int
    facts: int
    listed: int
    numbers: int
    row: int
    end: int

    @staticmethod
    def of(schedule: FourBitTiles, spec: Contraction) -> Scratch:
        depth, line = spec.depth, LINE_BYTES // F32.bytes
        assert isinstance(depth, int)
        runs, facts = schedule.rows * schedule.width, 4 if schedule.in_integers else 1
        count = schedule.rows * (depth // schedule.run) * facts
        words = schedule.rows * (depth // WORD) if schedule.in_integers else 0
        listed = runs + part_count(count, line) * line
        numbers = listed + part_count(words, line) * line
        row = depth if schedule.in_integers else depth // schedule.unit.group
        return Scratch(runs, facts, listed, numbers, row, numbers + schedule.rows * row)


Sums = list[Value]


class FourBitTask:
    """One task's code."""

    def __init__(self, context: ContractionContext[FourBitTiles]) -> None:
        self.context = context
        self.builder = context.builder
        self.schedule = context.schedule
        assert context.spec.four_bits is not None
        self.b: FourBitB = context.spec.four_bits
        self.scratch = Scratch.of(self.schedule, context.spec)
        depth = context.spec.depth
        assert isinstance(depth, int)
        self.runs = depth // self.schedule.run
        self.paired = self.schedule.unit.b == BF16

    def emit(self) -> None:
        """Write A to scratch and emit all panels, by plain products if A is not ordinary."""
        ordinary = self._read_a()
        with self.builder.when(ordinary) as branch:
            self._panels(self._fast_run)
        with self.builder.otherwise(branch):
            if not self.paired:
                self._copy_undivided()
            self._panels(self._plain_run)

    # ---- A ---------------------------------------------------------------------------------------

    def _read_a(self) -> Value:
        """Write A's rows and their sums into scratch. Return whether all of A is ordinary."""
        builder, schedule, lanes = self.builder, self.schedule, self.schedule.lanes
        none = Magnitudes.none(builder, lanes)
        known = [none.least, none.most]
        for row in range(schedule.rows):
            with builder.loop(0, self.runs, carry=known, prefix="run") as loop:
                magnitudes = Magnitudes(*loop.carried)
                total = self.context.zeros()
                for part in range(schedule.run // lanes):
                    k = loop.index * schedule.run + part * lanes
                    value = self._copy_a(row, k, part * lanes % WORD)
                    magnitudes = magnitudes.joined(builder, Magnitudes.of(builder, value))
                    total = builder.op("add", total, value)
                total = builder.op("reduce_add", total)
                self.context.write(self._fact(row, loop.index), total)
                loop.carry(magnitudes.least, magnitudes.most)
            known = list(loop.results)
        found = Magnitudes(*known).reduced(builder)
        # Sums of so many numbers of up to the limit are finite.
        ordinary = builder.op("le", found.most, 2.0**100)
        return builder.op("and", ordinary, builder.op("ge", found.least, _LEAST))

    def _copy_a(self, row: int, k: Dim, first: int) -> Value:
        """Copy a vector of A along k to scratch; `first` is the place of k in its word."""
        builder, lanes = self.builder, self.schedule.lanes
        value = self._load_a(row, k)
        where = self.scratch.numbers + row * self.scratch.row
        if not self.paired:
            self.context.write(where + k, builder.op("mul", value, self._divisors(first)))
            return value
        narrow = builder.op("cast", value, dtype=BF16)
        words = builder.op("bitcast", narrow, dtype=F32, lanes=lanes // 2)
        self.context.write(where + floordiv(k, 2), words)
        return value

    def _load_a(self, row: int, k: Dim) -> Value:
        lane = self.context.lane
        return self.b.a(self.builder, self.context.batch, row, (k + lane.index,), lane)

    def _divisors(self, first: int) -> Value:
        """Return 1 / 2^b for the lowest bits b of a word's numbers from `first` on, one a lane."""
        builder = self.builder
        number = builder.op("iota", dtype=I32, lanes=self.schedule.lanes)
        number = builder.op("and", builder.op("add", number, first), WORD - 1)
        half, pair = builder.op("and", number, 1), builder.op("shr", number, 1)
        bits = builder.op("add", builder.op("shl", half, 4), builder.op("shl", pair, 2))
        bits = builder.op("select", builder.op("eq", bits, _SIGN_BIT), 0, bits)
        exponents = builder.op("sub", 127, bits)
        return builder.op("bitcast", builder.op("shl", exponents, 23), dtype=F32)

    def _copy_undivided(self) -> None:
        builder, schedule = self.builder, self.schedule
        for row in range(schedule.rows):
            where = self.scratch.numbers + row * self.scratch.row
            with builder.loop(0, self.scratch.row, schedule.lanes, prefix="k") as loop:
                self.context.write(where + loop.index, self._load_a(row, loop.index))

    def _fact(self, row: int, run: Dim, number: int = 0) -> Dim:
        """Return the offset of a fact about a run: the first one is the sum of A's numbers."""
        return self.scratch.runs + (row * self.runs + run) * self.scratch.facts + number

    def _of_run(self, row: int, run: Dim, number: int = 0) -> Value:
        """Load a fact about a run into all lanes."""
        value = self.context.read(self._fact(row, run, number))
        return self.builder.op("splat", value, lanes=self.schedule.lanes)

    def _number(self, row: int, k: Dim) -> Value:
        """Load a number of A from scratch into all lanes; of bf16 the pair from k on."""
        where = self.scratch.numbers + row * self.scratch.row
        at = where + (floordiv(k, 2) if self.paired else k)
        value = self.context.read(at)
        if self.paired:
            value = self.builder.op("bitcast", value, dtype=I32)
        return self.builder.op("splat", value, lanes=self.schedule.lanes)

    # ---- panels ----------------------------------------------------------------------------------

    def _panels(self, run: Callable[[Dim, Dim, range, range, Sums], Sums]) -> None:
        with self.context.column_tiles() as panel:
            for rows in _parts(self.schedule.rows, self._rows_at_once()):
                self._sum(panel, rows, run)
            self.context.store_tile(0, panel, 0)

    def _rows_at_once(self) -> int:
        """Return how many rows have the sums of all runs and of one in registers."""
        return max(1, CHAINS // self.schedule.vectors)

    def _sum(
        self, panel: Dim, rows: range, run: Callable[[Dim, Dim, range, range, Sums], Sums]
    ) -> None:
        builder, schedule = self.builder, self.schedule
        vectors = range(schedule.vectors)
        zeros = [self.context.zeros()] * (len(rows) * len(vectors))
        with builder.loop(0, self.runs, carry=zeros, prefix="run") as loop:
            loop.carry(*run(panel, loop.index, rows, vectors, list(loop.carried)))
        for place, value in enumerate(loop.results):
            row, vector = divmod(place, len(vectors))
            at = rows[row] * schedule.width + vector * schedule.lanes
            self.context.write(at, value)

    def _words(self, panel: Dim, number: Dim, vector: int) -> Value:
        """Load a vector of words, number `number` along k."""
        at = self._words_at(panel, number) + vector * self.schedule.lanes
        return self.builder.load(self.b.words, at, I32, self.schedule.lanes)

    def _words_at(self, panel: Dim, number: Dim) -> Dim:
        """Return the element number of a panel's words, number `number` along k."""
        count = self.runs * (self.schedule.run // WORD)
        return panel_index(panel, number, count, self.schedule.width)

    def _fetch_words(self, panel: Dim, run: Dim, word: int) -> None:
        """Fetch the lines that begin among a run's words of one number along k, as if the run began
        with a line: each line once."""
        width, line = self.schedule.width, LINE_BYTES // I32.bytes
        first = self._words_at(panel, run * (self.schedule.run // WORD))
        for at in range(part_count(word * width, line) * line, (word + 1) * width, line):
            self.builder.prefetch(self.b.words, first + at + _AHEAD_BYTES // I32.bytes)

    def _factors(self, panel: Dim, k: Dim, vector: int) -> tuple[Value | None, Value | None]:
        place, width, size = vector * self.schedule.lanes, self.schedule.width, self.context.spec.n
        column, batch = panel * width + place, self.context.batch
        # Factors that are not in panels end with the last column.
        lane = self.context.masked(size - column, size, width, place)
        found = [
            None if load is None else load(self.builder, batch, column + lane.index, (k,), lane)
            for load in (self.b.scale, self.b.offset)
        ]
        return found[0], found[1]

    def _fast_run(self, panel: Dim, run: Dim, rows: range, vectors: range, totals: Sums) -> Sums:
        """Return `totals` with the products of a run, by numbers of B that are powers of two too
        large, or 1 + q / 16."""
        builder, schedule, tile = self.builder, self.schedule, self._tile(len(rows), len(vectors))
        sets = max(1, CHAINS // len(totals))
        sums = [self.context.zeros()] * (len(totals) * sets)
        step, turn = schedule.unit.group, 0
        for word in range(schedule.run // WORD):
            number = run * (schedule.run // WORD) + word
            self._fetch_words(panel, run, word)
            words = [self._words(panel, number, vector) for vector in vectors]
            for first in range(0, WORD, step):
                k = number * WORD + first
                row_numbers = [self._number(row, k) for row in rows]
                for v, each in enumerate(words):
                    column = self._numbers(each, bit_of(first))
                    for i, number_of_a in enumerate(row_numbers):
                        at = turn * len(totals) + i * len(vectors) + v
                        sums[at] = tile.multiply_add(builder, number_of_a, column, sums[at])
                turn = (turn + 1) % sets
        joined = sums[: len(totals)]
        for one in range(1, sets):
            part = sums[one * len(totals) : (one + 1) * len(totals)]
            joined = [builder.op("add", a, b) for a, b in zip(joined, part, strict=True)]
        return self._scaled(panel, run, rows, vectors, totals, joined)

    def _numbers(self, words: Value, bit: int) -> Value:
        """Return numbers whose lowest bit is `bit`: f32 times 2^bit, or 1 + q / 16 in words of
        bf16."""
        builder = self.builder
        if not self.paired:
            if bit == _SIGN_BIT:
                words, bit = builder.op("shr", words, bit), 0
            return builder.op("cast", builder.op("and", words, 15 << bit), dtype=F32)
        shift = _FRACTION - bit
        if shift:
            words = builder.op("shl" if shift > 0 else "shr", words, abs(shift))
        return builder.op("or", builder.op("and", words, _MASK), _ONES)

    def _scaled(
        self, panel: Dim, run: Dim, rows: range, vectors: range, totals: Sums, sums: Sums
    ) -> Sums:
        """Return `totals` plus the values that these sums of products stand for."""
        numbers: Sums = []
        for i, row in enumerate(rows):
            less = self._less(row, run, 16 if self.paired else 0)
            for each in sums[i * len(vectors) : (i + 1) * len(vectors)]:
                if self.paired:
                    numbers.append(self._times_and(each, self._constant(16.0), less))
                else:
                    numbers.append(each if less is None else self.builder.op("add", each, less))
        return self._with_factors(panel, run, rows, vectors, totals, numbers)

    def _less(self, row: int, run: Dim, more: int = 0) -> Value | None:
        """Return the sum of A in a run times `low` less `more`, None if that factor is zero."""
        if self.b.low == more:
            return None
        return self.builder.op("mul", self._of_run(row, run), float(self.b.low - more))

    def _with_factors(
        self, panel: Dim, run: Dim, rows: range, vectors: range, totals: Sums, numbers: Sums
    ) -> Sums:
        """Return `totals` plus sums of A's products with a run's numbers times factors."""
        builder = self.builder
        factors = [self._factors(panel, run * self.schedule.run, vector) for vector in vectors]
        result: Sums = []
        for i, row in enumerate(rows):
            total = self._of_run(row, run)
            for v, (scale, offset) in enumerate(factors):
                place = i * len(vectors) + v
                if scale is None:
                    value = builder.op("add", totals[place], numbers[place])
                else:
                    value = self._fma(scale, numbers[place], totals[place])
                if offset is not None:
                    value = self._fma(offset, total, value)
                result.append(value)
        return result

    def _plain_run(self, panel: Dim, run: Dim, rows: range, vectors: range, totals: Sums) -> Sums:
        """Return `totals` with the products of a run, by each element of B."""
        builder, schedule = self.builder, self.schedule
        count = schedule.run // WORD
        factors = [self._factors(panel, run * schedule.run, vector) for vector in vectors]
        with builder.loop(0, count, carry=totals, prefix="word") as loop:
            number, sums = run * count + loop.index, list(loop.carried)
            words = [self._words(panel, number, vector) for vector in vectors]
            for inner in range(WORD):
                row_numbers = [self._wide_number(row, number * WORD, inner) for row in rows]
                for v, each in enumerate(words):
                    column = self._element(each, inner, *factors[v])
                    for i, number_of_a in enumerate(row_numbers):
                        at = i * len(vectors) + v
                        sums[at] = self._fma(number_of_a, column, sums[at])
            loop.carry(*sums)
        return list(loop.results)

    def _wide_number(self, row: int, k: Dim, inner: int) -> Value:
        """Load a number of A as f32 into all lanes."""
        if not self.paired:
            return self._number(row, k + inner)
        pair = self._number(row, k + inner - inner % 2)
        bits = self.builder.op("shl", pair, 16) if inner % 2 == 0 else (
            self.builder.op("and", pair, -65536)
        )  # fmt: skip
        return self.builder.op("bitcast", bits, dtype=F32)

    def _element(
        self, words: Value, inner: int, scale: Value | None, offset: Value | None
    ) -> Value:
        builder = self.builder
        bits = builder.op("and", builder.op("shr", words, bit_of(inner)), 15)
        value = builder.op("cast", builder.op("add", bits, self.b.low), dtype=F32)
        if scale is not None:
            value = builder.op("mul", value, scale)
        return value if offset is None else builder.op("add", value, offset)

    def _tile(self, rows: int, vectors: int) -> Tile:
        schedule = self.schedule
        return Tile(rows, vectors, schedule.lanes, F32, schedule.use_fma, schedule.unit)

    def _fma(self, a: Value, b: Value, c: Value) -> Value:
        if self.schedule.use_fma:
            return self.builder.op("fma", a, b, c)
        return self.builder.op("add", self.builder.op("mul", a, b), c)

    def _times_and(self, a: Value, b: Value, c: Value | None) -> Value:
        return self.builder.op("mul", a, b) if c is None else self._fma(a, b, c)

    def _constant(self, number: float) -> Value:
        return self.builder.op("splat", number, dtype=F32, lanes=self.schedule.lanes)


def _parts(count: int, most: int) -> list[range]:
    return [range(first, min(count, first + most)) for first in range(0, count, most)]
