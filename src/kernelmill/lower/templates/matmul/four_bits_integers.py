"""Tasks of products with four-bit numbers that convert A's bf16 numbers into integers.

Each run of A has a unit u, a power of two. A number is split into a multiple of u of 15 bits, and a
multiple of 2^-15 u, which is summed separately, over the words of eight numbers that have any. Both
are 16-bit integers: one instruction multiplies two of them with two numbers q and adds. Extracting
the numbers of a word takes one logical instruction, and a shift for half of them, since sums of
a * 16 q are 16 times those of a * q. So all sums of a run are exact. The two parts have all 8 bits
of a bf16 number, unless a number is 2^22 times as large as another of its run. In that case, or if
a number is not finite, each element of B is dequantised and multiplied in f32.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, floordiv, minimum
from kernelmill.core.dtype import F32, I16, I32, I64
from kernelmill.kernel.ir import SCRATCH, Value
from kernelmill.lower.templates.matmul.four_bits_task import FourBitTask, Sums
from kernelmill.lower.weights.four_bits import WORD

_FRACTION = 23
"""The lowest bit of an f32's exponent."""

_BIAS, _EXPONENT, _MAGNITUDE = 127, 0x7F800000, 0x7FFFFFFF
"""The exponent's bias, and masks of the exponent and the magnitude, of f32."""

_BITS = 15
"""Bits of an integer without its sign."""

_LEAST, _MOST = -90, 100
"""Exponents of two: the unit of a run is as if the first were in it, and what is larger than the
second is not ordinary, so that neither a unit nor a sum is denormal or infinite."""

_FIRST, _SECOND = 0x000F000F, 0x00F000F0
"""Masks of the lowest four bits of a word's two halves, and of the next four."""

_TO_WHOLE = 1.5 * 2.0**23
"""Added to a number, rounds it to a whole one, which the lower half of the sum's bits is."""

_SUM, _UNIT, _LOWER_UNIT, _LOWER = range(4)
"""Facts of a run: the sum of its numbers, the unit, that of what is lower, and how many words have
numbers with something lower."""


class IntegerTask(FourBitTask):
    """One task's code, for numbers of bf16."""

    def emit(self) -> None:
        """Write A as integers to scratch and emit all panels, in f32 if A is not ordinary."""
        ordinary = self._make_integers()
        with self.builder.when(ordinary) as branch:
            self._panels(self._integer_run)
        with self.builder.otherwise(branch):
            self._copy_undivided()
            self._panels(self._plain_run)

    # ---- A ---------------------------------------------------------------------------------------

    def _make_integers(self) -> Value:
        """Write A's rows as integers, and facts about their runs, into scratch. Return whether all
        is ordinary.

        Three loops over the runs, so that none waits for its own largest number, nor reads what it
        has just written: other runs lie between.
        """
        builder, lanes = self.builder, self.schedule.lanes
        none = builder.op("splat", 0, dtype=I32, lanes=lanes)
        most = lost = none
        for row in range(self.schedule.rows):
            with builder.loop(0, self.runs, carry=[most], prefix="run") as loop:
                loop.carry(self._measure_run(row, loop.index, *loop.carried))
            (most,) = loop.results
            with builder.loop(0, self.runs, carry=[lost], prefix="run") as loop:
                loop.carry(self._make_run(row, loop.index, *loop.carried))
            (lost,) = loop.results
            with builder.loop(0, self.runs, prefix="run") as loop:
                self._list_lower(row, loop.index)
        exact = builder.op("eq", builder.op("reduce_or", lost), 0)
        finite = builder.op("le", builder.op("reduce_max", most), _bits(_MOST))
        return builder.op("and", exact, finite)

    def _measure_run(self, row: int, run: Dim, most: Value) -> Value:
        """Write a run's sum and units into scratch. Return the larger ones of `most` and the bits
        of its magnitudes."""
        builder = self.builder
        values = [self._load_a(row, k) for k in self._vectors_of(run)]
        total, large = values[0], self._magnitude(values[0])
        for value in values[1:]:
            total = builder.op("add", total, value)
            large = builder.op("max", large, self._magnitude(value))
        self.context.write(self._fact(row, run, _SUM), builder.op("reduce_add", total))
        exponent = builder.op("and", builder.op("reduce_max", large), _EXPONENT)
        exponent = builder.op("max", exponent, _bits(_LEAST))
        for part, fact in enumerate((_UNIT, _LOWER_UNIT)):
            unit = builder.op("sub", exponent, (part * _BITS + _BITS - 1) << _FRACTION)
            unit = builder.op("bitcast", unit, dtype=F32)
            self.context.write(self._fact(row, run, fact), unit)
        return builder.op("max", most, large)

    def _make_run(self, row: int, run: Dim, lost: Value) -> Value:
        """Write a run's integers into scratch. Return `lost` and the bits that none of them has."""
        builder, lanes = self.builder, self.schedule.lanes
        unit = builder.load(SCRATCH, self._fact(row, run, _UNIT), I32)
        inverse = builder.op("bitcast", builder.op("sub", 2 * _bits(0), unit), dtype=F32)
        inverse = builder.op("splat", inverse, lanes=lanes)
        for k in self._vectors_of(run):
            scaled = builder.op("mul", self._load_a(row, k), inverse)
            lower = self._store_whole(row, 0, k, scaled)
            beyond = self._store_whole(row, 1, k, builder.op("mul", lower, 2.0**_BITS))
            lost = builder.op("or", lost, self._magnitude(beyond))
        return lost

    def _vectors_of(self, run: Dim) -> list[Dim]:
        """Return the first k of each vector of a run."""
        size = self.schedule.run
        return [run * size + first for first in range(0, size, self.schedule.lanes)]

    def _magnitude(self, value: Value) -> Value:
        """Return the bits of numbers without their signs: larger ones for larger numbers."""
        return self.builder.op("and", self.builder.op("bitcast", value, dtype=I32), _MAGNITUDE)

    def _store_whole(self, row: int, part: int, k: Dim, numbers: Value) -> Value:
        """Store numbers as whole ones, i16, in scratch. Return their remainders."""
        builder = self.builder
        moved = builder.op("add", numbers, _TO_WHOLE)
        narrow = builder.op("cast", builder.op("bitcast", moved, dtype=I32), dtype=I16)
        pairs = builder.op("bitcast", narrow, dtype=I32, lanes=self.schedule.lanes // 2)
        builder.store(SCRATCH, self._pair_at(row, part, k), pairs)
        return builder.op("sub", numbers, builder.op("sub", moved, _TO_WHOLE))

    def _list_lower(self, row: int, run: Dim) -> None:
        """List the words of a run whose numbers have lower parts, by their numbers."""
        builder, words = self.builder, self.schedule.run // WORD
        count = builder.index(0)
        for word in range(words):
            number = run * words + word
            place = builder.let(count, 0, word)
            where = self._listed_at(row, run) + place
            builder.store(SCRATCH, where, builder.op("cast", builder.index(number), dtype=I32))
            pairs = builder.load(SCRATCH, self._pair_at(row, 1, number * WORD), I32, WORD // 2)
            found = builder.op("ne", builder.op("reduce_or", pairs), 0)
            count = builder.op("add", count, builder.op("cast", found, dtype=I64))
        fact = self._fact(row, run, _LOWER)
        builder.store(SCRATCH, fact, builder.op("cast", count, dtype=I32))

    def _listed_at(self, row: int, run: Dim) -> Dim:
        words = self.schedule.run // WORD
        return self.scratch.listed + (row * self.runs + run) * words

    def _pair_at(self, row: int, part: int, k: Dim) -> Dim:
        """Return the offset of the integers from k on, or with `part` 1 of their lower parts."""
        where = self.scratch.numbers + row * self.scratch.row
        return where + part * (self.scratch.row // 2) + floordiv(k, 2)

    # ---- panels ----------------------------------------------------------------------------------

    def _rows_at_once(self) -> int:
        return 1

    def _integer_run(self, panel: Dim, run: Dim, rows: range, vectors: range, totals: Sums) -> Sums:
        """Return `totals` with the products of a run."""
        builder, (row,) = self.builder, rows
        words = self.schedule.run // WORD
        zeros = [builder.op("splat", 0, dtype=I32, lanes=self.schedule.lanes)] * (2 * len(vectors))
        whole = zeros
        for word in range(words):
            self._fetch_words(panel, run, word)
            whole = self._add_word(panel, row, 0, run * words + word, vectors, whole)
        unit = self._of_run(row, run, _UNIT)
        sums = self._in_units(whole, unit, [self._less(row, run)] * len(vectors))
        listed = builder.load(SCRATCH, self._fact(row, run, _LOWER), I32)
        count = builder.let(builder.op("cast", listed, dtype=I64), 0, words)
        with builder.loop(0, minimum(count, 1), carry=sums, prefix="lower") as some:
            with builder.loop(0, count, carry=zeros, prefix="word") as loop:
                where = self._listed_at(row, run) + loop.index
                number = builder.op("cast", builder.load(SCRATCH, where, I32), dtype=I64)
                number = builder.let(number, 0, self.runs * words - 1)
                loop.carry(*self._add_word(panel, row, 1, number, vectors, loop.carried))
            unit = self._of_run(row, run, _LOWER_UNIT)
            some.carry(*self._in_units(loop.results, unit, list(some.carried)))
        return self._with_factors(panel, run, rows, vectors, totals, list(some.results))

    def _in_units(self, sums: Sequence[Value], unit: Value, known: Sequence[Value | None]) -> Sums:
        """Return `known` plus, times a unit, sums of integers."""
        builder, result = self.builder, Sums()
        for one, sixteen, value in zip(sums[::2], sums[1::2], known, strict=True):
            whole = builder.op("add", one, builder.op("shr", sixteen, 4))
            number = builder.op("cast", whole, dtype=F32)
            result.append(self._times_and(number, unit, value))
        return result

    def _add_word(
        self, panel: Dim, row: int, part: int, number: Dim, vectors: range, sums: Sequence[Value]
    ) -> list[Value]:
        """Sums of a row's integers times numbers and times 16 of them, by vectors, with those of a
        word."""
        builder, lanes, unit = self.builder, self.schedule.lanes, self.schedule.unit
        at, result = self._pair_at(row, part, number * WORD), list(sums)
        pairs = [
            builder.op("splat", builder.load(SCRATCH, at + pair, I32), lanes=lanes)
            for pair in range(WORD // 2)
        ]
        for v in vectors:
            words = self._words(panel, number, v)
            for two, half in ((pairs[:2], words), (pairs[2:], builder.op("shr", words, 8))):
                for i, mask in enumerate((_FIRST, _SECOND)):
                    numbers, place = builder.op("and", half, mask), 2 * v + i
                    result[place] = builder.dot(unit, two[i], numbers, result[place])
        return result


def _bits(exponent: int) -> int:
    """Return 2 to this exponent as the bits of an f32."""
    return (_BIAS + exponent) << _FRACTION
