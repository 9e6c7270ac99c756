"""The emit context of an attention kernel, and the steps that its emitters share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, floordiv, maximum, minimum
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, Operand, Value, VType
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.templates.attention.blocks import (
    AttentionBlocks,
    AttentionScratch,
    scratch_layout,
)
from kernelmill.lower.templates.attention.spec import AttentionSpec, LoadEntry


@dataclass(frozen=True)
class Row:
    """One query row: its index in the problem, and its number among the task's rows in scratch."""

    batch: Dims
    m: Dim
    number: Dim


@dataclass(frozen=True)
class RowTile:
    """The rows of a register tile: `row(i)` is row i of `count`, number first + i in scratch."""

    first: Dim
    count: int
    row: Callable[[Dim], Row]


@dataclass(frozen=True)
class AttentionContext:
    """The kernel under construction. Registers hold `spec.accumulate` throughout.

    scales_scores  scores in scratch are not scaled yet, as the queries were not
    masking        whether the mask holds for the block of keys at hand, where that is listed
    """

    builder: KernelBuilder
    spec: AttentionSpec
    schedule: AttentionBlocks
    scratch: AttentionScratch
    masking: Value | None = None

    scales_scores: ClassVar[bool] = False

    @classmethod
    def of(cls, builder: KernelBuilder, spec: AttentionSpec, schedule: AttentionBlocks) -> Self:
        """Make the context of a kernel under a schedule."""
        return cls(builder, spec, schedule, scratch_layout(spec, schedule))

    @property
    def vector(self) -> VType:
        """Type of a whole vector."""
        return VType(self.spec.accumulate, self.schedule.lanes)

    @property
    def whole_blocks(self) -> bool:
        """True if every block of keys is known to be full."""
        known, blocks = self.spec.keys, self.spec.blocks
        sizes = (known,) if blocks is None else (known, blocks.keys)
        return all(isinstance(size, int) and size % self.schedule.keys == 0 for size in sizes)

    def lane(self, count: int, mask: Value | None = None) -> Lane:
        """Return a new lane symbol for `count` lanes."""
        return Lane(self.builder.fresh_symbol("l", 0, count - 1), count, mask)

    def lanes_below(self, count: Dim) -> Value:
        """Return the mask of a vector's lanes 0..count-1."""
        builder = self.builder
        return builder.op("lane_mask", builder.index(count), lanes=self.schedule.lanes)

    def read(self, offset: Dim, lanes: int = 1) -> Value:
        """Load from scratch at `offset`, in the accumulator's dtype."""
        return self.builder.load(SCRATCH, offset, self.spec.accumulate, lanes)

    def write(self, offset: Dim, value: Operand, lanes: int = 1, stride: Dim = 1) -> None:
        """Store a register, or a constant in `lanes` lanes, in scratch."""
        if not isinstance(value, Value):
            value = self.builder.op("splat", value, dtype=self.spec.accumulate, lanes=lanes)
        self.builder.store(SCRATCH, offset, value, stride=stride)

    def multiply_add(self, a: Operand, b: Operand, c: Operand) -> Value:
        """Emit a * b + c, with one rounding where that is one instruction."""
        builder = self.builder
        if self.schedule.use_fma:
            return builder.op("fma", a, b, c)
        return builder.op("add", builder.op("mul", a, b), c)

    def larger(self, a: Operand, b: Operand) -> Value:
        """Emit the larger value; b where a is a NaN."""
        builder = self.builder
        return builder.op("select", builder.op("gt", a, b), a, b)

    def row_vectors(self, elements: Dim) -> list[tuple[int, int]]:
        """Return (start, lanes) of a row's vectors: whole ones, then smaller powers of two."""
        assert isinstance(elements, int)
        found: list[tuple[int, int]] = []
        start, lanes = 0, self.schedule.lanes
        while start < elements:
            while lanes > elements - start:
                lanes //= 2
            found.append((start, lanes))
            start += lanes
        return found

    def load_vector(self, load: LoadEntry, batch: Dims, row: Dim, start: Dim, lanes: int) -> Value:
        """Load `lanes` neighbouring elements of one row of an operand."""
        if lanes == 1:
            return load(self.builder, batch, row, start, None)
        lane = self.lane(lanes)
        return self.broadcast(load(self.builder, batch, row, lane.index + start, lane), lanes)

    def broadcast(self, value: Value, lanes: int) -> Value:
        """Return a vector of `lanes` lanes; a callback may give a scalar where all are equal."""
        if value.type.lanes == lanes:
            return value
        return self.builder.op("splat", value, dtype=value.type.dtype, lanes=lanes)

    def unseen_rows(self, start: Dim, first: Dim) -> Dim:
        """Return how many rows of a task, in whole tiles, see no key from `start` on."""
        later, rows = self._later, self.schedule.tile_rows
        if later is None:
            return 0
        hidden = maximum(0, floordiv(start - first - later, rows) * rows)
        return self._where_masked(hidden, 0)

    def seen_keys(self, end: Dim, tile: Dim) -> Dim:
        """Return the end of the keys that the mask shows to the tile of rows from `tile` on."""
        later = self._later
        if later is None:
            return end
        return self._where_masked(minimum(end, tile + self.schedule.tile_rows + later), end)

    @property
    def _later(self) -> int | None:
        return 0 if self.spec.causal else self.spec.later

    def _where_masked(self, found: Dim, otherwise: Dim) -> Dim:
        """Return `found` in a block of keys in which the mask holds, `otherwise` in others."""
        b = self.builder
        if self.masking is None:
            return found
        return b.let(b.op("select", self.masking, b.index(found), b.index(otherwise)))

    def start_row(self, row: Row) -> None:
        """Put the scaled query into scratch, and begin its sums."""
        scratch, spec = self.scratch, self.spec
        for start, lanes in self.row_vectors(spec.depth):
            query = self.load_vector(spec.query, row.batch, row.m, start, lanes)
            offset = scratch.queries + row.number * scratch.query_row + start
            self.write(offset, self.builder.op("mul", query, spec.scale))
        self.start_sums(row)

    def start_sums(self, row: Row) -> None:
        """Initialise the peak, total and sums of a row."""
        scratch = self.scratch
        if self.schedule.single_block:
            return
        self.write(scratch.peaks + row.number, float("-inf"))
        self.write(scratch.totals + row.number, 0.0)
        for start in range(0, scratch.value_row, self.schedule.lanes):
            offset = scratch.sums + row.number * scratch.value_row + start
            self.write(offset, 0.0, self.schedule.lanes)

    def finish_row(self, row: Row) -> None:
        """Divide the weighted sums by the total: zeros where no key took part."""
        b, scratch, spec = self.builder, self.scratch, self.spec
        total = self.read(scratch.totals + row.number)
        if spec.normaliser:
            self._store_normaliser(row, total)
        total = b.op("select", b.op("eq", total, 0.0), 1.0, total)
        share = b.op("div", 1.0, total)
        for start, lanes in self.row_vectors(spec.value_depth):
            offset = scratch.sums + row.number * scratch.value_row + start
            value = b.op("mul", self.read(offset, lanes), share)
            if lanes == 1:
                spec.store(b, row.batch, row.m, start, None, value)
            else:
                lane = self.lane(lanes)
                spec.store(b, row.batch, row.m, lane.index + start, lane, value)

    def _store_normaliser(self, row: Row, total: Value) -> None:
        """Store the logarithm of the sum of exponentials behind the values. It is infinite where a
        score is, or where no key took part."""
        b, spec = self.builder, self.spec
        peak = self.read(self.scratch.peaks + row.number)
        infinite = b.op("eq", b.op("abs", peak), float("inf"))
        finite = b.op("add", peak, b.op("log", total))
        found = b.op("select", infinite, peak, finite)
        spec.store(b, row.batch, row.m, spec.value_depth, None, found)

    def score_offset(self, tile_row: Dim, column: Dim) -> Dim:
        """Return the offset of a score of the current register tile in scratch."""
        return self.scratch.scores + tile_row * self.scratch.score_row + column

    def read_scores(self, offset: Dim) -> Value:
        """Load a vector of scaled scores."""
        return self.read(offset, self.schedule.lanes)

    def write_weights(self, tile_row: Dim, vector: Dim, weights: Value) -> None:
        """Store exponentials of scores in place of the scores."""
        self.write(self.score_offset(tile_row, vector * self.schedule.lanes), weights)

    def query_elements(self, tile: RowTile, k: Dim, *, lanes: int = 1) -> list[Value]:
        """Load `lanes` elements from k on of each of the tile's scaled queries."""
        row = self.scratch.query_row
        offset = self.scratch.queries + tile.first * row + k
        return [self.read(offset + i * row, lanes) for i in range(tile.count)]

    def read_vectors(self, offset: Dim, count: int) -> Sequence[Value]:
        """Load `count` neighbouring vectors of scratch."""
        lanes = self.schedule.lanes
        return [self.read(offset + i * lanes, lanes) for i in range(count)]


def row_of_tile(context: AttentionContext, batch: Dims, first: Dim, number: Dim, i: Dim) -> Row:
    """Return row i of the tile at `number`; one past the end repeats the last one's mask."""
    b, total = context.builder, context.spec.rows
    sizes = total, context.schedule.rows
    whole = all(isinstance(n, int) and n % context.schedule.tile_rows == 0 for n in sizes)
    m, spec = first + number + i, context.spec
    if (spec.mask is not None or spec.modify is not None) and not whole:
        m = b.let(b.index(minimum(m, total - 1)), 0, total - 1)
    return Row(batch, m, number + i)
