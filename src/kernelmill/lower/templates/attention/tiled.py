"""Many query rows on a unit that multiplies tiles.

Queries, and blocks of keys and values, are copied into tiles; so are the exponentials of scores,
rounded to bf16 as eager's are. Sums and the softmax are in f32.
"""

from __future__ import annotations

from functools import partial

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod
from kernelmill.core.dtype import BF16
from kernelmill.core.target.dot_units import TILE_ROWS
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, Value, VType
from kernelmill.lower.elements.axes import Dims, part_count
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.tiles import (
    TILE_WORDS,
    WORDS,
    Part,
    TileBlock,
    TilesInMemory,
    TileSource,
    copy_a_tiles,
    copy_b_tiles,
)
from kernelmill.lower.templates.attention.blocks import PanelBlocks, Regions
from kernelmill.lower.templates.attention.context import AttentionContext, Row, RowTile, row_of_tile
from kernelmill.lower.templates.attention.key_blocks import each_block
from kernelmill.lower.templates.attention.softmax import exponentiate
from kernelmill.lower.templates.attention.spec import AttentionSpec, WordOperands, Words, round_up

_KEYS = 2 * WORDS
"""Keys of a tile along them."""


@dataclass(frozen=True, kw_only=True)
class Tiled(PanelBlocks):
    """Many rows on a unit that multiplies tiles: queries, keys, values and weights are copied into
    tiles of `spec.words`, keys so many vectors at a time; `tile_rows` are those of one or two
    tiles."""

    @classmethod
    def plan(cls, spec: AttentionSpec, machine: Machine, rows_at_a_time: int) -> Tiled | None:
        """Plan the schedule if operands are in words for such a unit, else None."""
        if spec.words is None:
            return None
        few = isinstance(spec.rows, int) and spec.rows <= TILE_ROWS
        return cls.cut(spec, machine, TILE_ROWS if few else 2 * TILE_ROWS, 2)

    def regions(self, spec: AttentionSpec) -> Regions:
        """Return regions for tiles of queries, keys, values and weights."""
        assert isinstance(spec.depth, int) and isinstance(spec.value_depth, int)
        depth = part_count(spec.depth, 2 * WORDS) * TILE_WORDS
        along = self.keys // _KEYS * TILE_WORDS
        return Regions(
            self.rows, self.panel * self.lanes, self.rows // TILE_ROWS * depth,
            self.keys // WORDS * depth, round_up(spec.value_depth, self.lanes) // WORDS * along,
            self.tile_rows // TILE_ROWS * along,
        )  # fmt: skip

    def emit(self, builder: KernelBuilder, spec: AttentionSpec, batch: Dims, first: Dim) -> None:
        """Emit the query rows of one task."""
        _AttentionTask(TiledAttentionContext.of(builder, spec, self), batch, first).emit()


class TiledAttentionContext(AttentionContext):
    """Scores are scaled when they are read, and exponentials go into tiles of bf16."""

    scales_scores = True

    def read_scores(self, offset: Dim) -> Value:
        """Load a vector of scores, and scale them."""
        return self.builder.op("mul", self.read(offset, self.schedule.lanes), self.spec.scale)

    def write_weights(self, tile_row: Dim, vector: Dim, weights: Value) -> None:
        """Store exponentials of scores, rounded."""
        along = self.schedule.keys // _KEYS
        tile = floordiv(tile_row, TILE_ROWS) * along + floordiv(vector, 2)
        row = mod(tile_row, TILE_ROWS) * WORDS
        place = self.scratch.weights + tile * TILE_WORDS + row
        place = place * 2 + mod(vector, 2) * WORDS
        self.builder.store(SCRATCH, place, self.builder.op("cast", weights, dtype=BF16))


class _AttentionTask:
    def __init__(self, context: AttentionContext, batch: Dims, first: Dim) -> None:
        spec, schedule = context.spec, context.schedule
        assert spec.words is not None
        assert isinstance(spec.depth, int) and isinstance(spec.value_depth, int)
        self.context = context
        self.b = context.builder
        self.words: WordOperands = spec.words
        self.batch = batch
        self.first = first
        self.stop = minimum(first + schedule.rows, spec.rows)
        self.depth = part_count(spec.depth, 2 * WORDS)
        self.value_depth = spec.value_depth
        self.down = schedule.tile_rows // TILE_ROWS

    def emit(self) -> None:
        context, b = self.context, self.b
        self._copy_queries()
        with b.loop(self.first, self.stop, prefix="m") as loop:
            context.start_sums(Row(self.batch, loop.index, loop.index - self.first))
        each_block(context, self.batch, self.first, self.stop, self._block)
        with b.loop(self.first, self.stop, prefix="m") as loop:
            context.finish_row(Row(self.batch, loop.index, loop.index - self.first))

    def _block(self, context: AttentionContext, _: Dims, start: Dim, end: Dim) -> None:
        self._copy_keys(start, end)
        self._copy_values(start, end)
        rows, skipped = self.down * TILE_ROWS, context.unseen_rows(start, self.first)
        with self.b.loop(skipped, self.stop - self.first, rows, prefix="r") as loop:
            row = partial(row_of_tile, context, self.batch, self.first, loop.index)
            tile = RowTile(loop.index, rows, row)
            count = context.seen_keys(end, self.first + loop.index) - start
            self._scores(tile, count)
            exponentiate(context, tile, start, count, ceildiv(count, _KEYS) * 2)
            self._weighted_values(tile, ceildiv(count, _KEYS))

    # ---- products --------------------------------------------------------------------------------

    def _scores(self, tile: RowTile, count: Dim) -> None:
        """Compute scores of the tile's rows against `count` keys, two tiles of keys at a time."""
        block, scratch = self._product(2), self.context.scratch
        queries = self._tiles(block.a, scratch.queries, self.depth)
        keys = self._tiles(block.b, scratch.keys, self.depth)
        with self.b.loop(0, ceildiv(count, _KEYS), prefix="p") as loop:
            a = queries.fetch(self.b, floordiv(tile.first, TILE_ROWS))
            b = keys.fetch(self.b, loop.index * 2)
            sums = block.sum_products(self.b, 0, self.depth, a, b, block.zeros(self.b))
            block.write(self.b, scratch.scores + loop.index * _KEYS, scratch.score_row, sums)

    def _weighted_values(self, tile: RowTile, keys: Dim) -> None:
        """Add the values, weighted, of so many tiles along the keys to the rows' sums."""
        context, scratch = self.context, self.context.scratch
        fresh, along = context.schedule.single_block, context.schedule.keys // _KEYS
        if not fresh:
            self._scale_sums(tile)
        tiles, row = scratch.value_row // WORDS, scratch.value_row
        for column in range(0, tiles, 2):
            block = self._product(min(2, tiles - column))
            a = self._tiles(block.a, scratch.weights, along).fetch(self.b, 0)
            b = self._tiles(block.b, scratch.values, along).fetch(self.b, column)
            place = scratch.sums + tile.first * row + column * WORDS
            older = block.zeros(self.b) if fresh else block.read(self.b, place, row)
            sums = block.sum_products(self.b, 0, keys, a, b, older)
            block.write(self.b, place, row, sums)

    def _scale_sums(self, tile: RowTile) -> None:
        """Scale the sums of earlier blocks to the new peaks."""
        context, scratch = self.context, self.context.scratch
        with self.b.loop(0, tile.count, prefix="t") as loop:
            factor = context.read(scratch.factors + loop.index)
            start = scratch.sums + (tile.first + loop.index) * scratch.value_row
            for offset in range(0, scratch.value_row, WORDS):
                older = context.read(start + offset, WORDS)
                context.write(start + offset, self.b.op("mul", older, factor))

    def _product(self, across: int) -> TileBlock:
        return TileBlock(self.words.unit, self.down, across, TILE_ROWS)

    def _tiles(self, type: VType, start: int, along: int) -> TilesInMemory:
        """Return tiles in scratch from `start` on, `along` of them along k for each outer one."""
        return TilesInMemory(
            SCRATCH, type, lambda outer, k: (start + (outer * along + k) * TILE_WORDS) * 2, _KEYS
        )

    # ---- copies ----------------------------------------------------------------------------------

    def _copy_queries(self) -> None:
        start, depth = self.context.scratch.queries, self.depth

        def place(_: int, row: Dim, k: Dim) -> Dim:
            tile = floordiv(row, TILE_ROWS) * depth + k
            return start + tile * TILE_WORDS + mod(row, TILE_ROWS) * WORDS

        source = self._source(self.words.query, self.context.spec.rows, self._depth_words)
        part = Part(self.first, self.stop - self.first, 0, depth)
        copy_a_tiles(self._emit_context, source, part, place)

    def _copy_keys(self, start: Dim, end: Dim) -> None:
        base, depth = self.context.scratch.keys, self.depth

        def place(_: int, key: Dim, k: Dim) -> Dim:
            return base + (floordiv(key, WORDS) * depth + k) * TILE_WORDS

        source = self._source(self.words.key, self.context.spec.keys, self._depth_words)
        copy_b_tiles(self._emit_context, source, Part(start, end - start, 0, depth), place)

    def _copy_values(self, start: Dim, end: Dim) -> None:
        """Copy values, with zeros behind the last key, since a tile has a weight for each."""
        base, along = self.context.scratch.values, self.context.schedule.keys // _KEYS
        first = floordiv(start, _KEYS)

        def place(_: int, column: Dim, k: Dim) -> Dim:
            return base + (floordiv(column, WORDS) * along + k - first) * TILE_WORDS

        source = self._source(self.words.value, self.value_depth, ceildiv(end, 2))
        part = Part(0, self.value_depth, first, ceildiv(end, _KEYS))
        copy_b_tiles(self._emit_context, source, part, place)

    def _source(self, words: Words, outer: Dim, count: Dim) -> TileSource:
        return TileSource((words.load,), words.contiguous_along, self.batch, outer, count)

    @property
    def _depth_words(self) -> Dim:
        return ceildiv(self.context.spec.depth, 2)

    @property
    def _emit_context(self) -> EmitContext:
        return EmitContext(self.b, self.context.lane(WORDS), self.context.spec.accumulate)
