"""The tiled schedule: blocks of tiles of sums on a unit that multiplies tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod
from kernelmill.core.isa import TILE_ROWS
from kernelmill.kernel.ir import SCRATCH, VType
from kernelmill.lower.elements.views import ravel
from kernelmill.lower.emit.branches import Choice, choose
from kernelmill.lower.emit.tiles import (
    TILE_WORDS,
    WORDS,
    Part,
    TileBlock,
    TilesInMemory,
    TileSource,
    copy_a_tiles,
    copy_b_tiles,
    depth_tiles,
)
from kernelmill.lower.templates.matmul.block_tasks import BlockTasks
from kernelmill.lower.templates.matmul.blocked import ReadA, ReadB
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.spec import Contraction, Operand, loader
from kernelmill.lower.templates.matmul.store import at_most, store_tile


@dataclass(frozen=True)
class TiledScratch:
    """Where things are in a thread's scratch, in words of 4 bytes.

    sums  finished blocks of tiles, row-major
    part  with planes and blocks along k, the sums of one such block
    a     A's tiles: [plane][row tile][tile along k]
    b     B's tiles: [plane][column tile][tile along k]
    end   how much there is
    """

    sums: int
    part: int
    a: Dim
    b: Dim
    end: Dim


@dataclass(frozen=True)
class Tiled(BlockTasks):
    """Blocks of tiles of sums stay in registers while k runs, and go to `store` through scratch.

    height                   rows of a tile of sums: all that there are, or those of whole tiles
    down, across             tiles of a block along m and along n
    a, b                     where tiles are read: PACKED or COPIED, and A's IN_PLACE
    depth_block              tiles along k at a time for all blocks of a task, whose sums grow in
                             scratch; 0: all of them, block by block. Of planes the sums of each
                             such block begin anew, so that small products are not lost in large
                             sums, and are added to those before
    work                     estimated nanoseconds of all tasks on one core
    row_tiles, column_tiles  blocks that one task computes
    """

    height: int
    down: int
    across: int
    a: ReadA
    b: ReadB
    depth_block: int
    work: Dim
    row_tiles: int = 1
    column_tiles: int = 1

    def __post_init__(self) -> None:
        if self.a is ReadA.PREFETCH or self.b not in (ReadB.PACKED, ReadB.COPIED):
            raise ValueError(f"tiles are not read as {self.a} and {self.b}")

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return WORDS

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.down * self.height

    @property
    def vectors(self) -> int:
        """Vectors of columns of a block."""
        return self.across

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.across * WORDS

    def scratch(self, spec: Contraction) -> TiledScratch:
        """The regions of a thread's scratch, each on a cache line of its own."""
        blocks = self.row_tiles if self.depth_block else 1
        block = self.rows * self.width
        part = blocks * block
        a = part + (block if self.depth_block and spec.split else 0)
        tiles, planes = depth_tiles(spec.depth) * TILE_WORDS, spec.planes
        copied = self.row_tiles * self.down * tiles if self.a is ReadA.COPIED else 0
        b = a + len(planes.a) * copied
        depth = self.depth_block * TILE_WORDS or tiles
        panel = self.across * depth if self.b is ReadB.COPIED else 0
        return TiledScratch(0, part, a, b, b + len(planes.b) * panel)

    def scratch_bytes(self, spec: Contraction) -> Dim:
        """All of a thread's scratch."""
        return self.scratch(spec).end * 4


class TiledContext(ContractionContext[Tiled]):
    """Where in a tiled contraction code is being emitted."""

    @property
    def scratch(self) -> TiledScratch:
        """The regions of scratch."""
        return self.schedule.scratch(self.spec)

    @property
    def depth(self) -> Dim:
        """Tiles along k."""
        return depth_tiles(self.spec.depth)

    def block(self, down: int, across: int) -> TileBlock:
        """A block of so many tiles."""
        return TileBlock(self.spec.unit, down, across, self.schedule.height)


def emit_tiled(context: TiledContext) -> None:
    """All of a task's blocks."""
    a = _tiles_of_a(context)
    with context.column_tiles() as column:
        if context.schedule.depth_block:
            _in_depth_blocks(context, a, column)
        else:
            _whole_depth(context, a, column)


def _whole_depth(context: TiledContext, a: list[TilesInMemory], column: Dim) -> None:
    depth, place = (0, context.depth), context.scratch.sums
    b = _tiles_of_b(context, column, *depth)
    with context.row_tiles() as row:
        _sum_blocks(context, (row, column), depth, (a, b), place, fresh=True)
        store_tile(context, row, column, place)


def _in_depth_blocks(context: TiledContext, a: list[TilesInMemory], column: Dim) -> None:
    schedule, size = context.schedule, context.schedule.depth_block
    block = schedule.rows * schedule.width

    def place(row: Dim) -> Dim:
        return context.scratch.sums + (row - context.first_row_tile) * block

    with context.builder.loop(0, schedule.row_tiles * block, WORDS, prefix="v") as loop:
        context.write(context.scratch.sums + loop.index, context.zeros())
    with context.builder.loop(0, context.depth, size, prefix="block") as loop:
        depth = loop.index, minimum(context.depth, loop.index + size)
        b = _tiles_of_b(context, column, *depth)
        with context.row_tiles() as row:
            if context.spec.split is None:
                _sum_blocks(context, (row, column), depth, (a, b), place(row), fresh=False)
            else:
                part = context.scratch.part
                _sum_blocks(context, (row, column), depth, (a, b), part, fresh=True)
                _add(context, part, place(row), block)
    with context.row_tiles() as row:
        store_tile(context, row, column, place(row))


def _add(context: TiledContext, source: Dim, target: Dim, count: int) -> None:
    """Add so many sums in scratch to others."""
    with context.builder.loop(0, count, WORDS, prefix="v") as loop:
        known = context.read(target + loop.index, WORDS)
        more = context.read(source + loop.index, WORDS)
        context.write(target + loop.index, context.builder.op("add", known, more))


def _sum_blocks(
    context: TiledContext, at: tuple[Dim, Dim], depth: tuple[Dim, Dim],
    operands: tuple[list[TilesInMemory], list[TilesInMemory]], place: Dim, fresh: bool,
) -> None:  # fmt: skip
    """Add the products of tiles of this depth to a block's sums in scratch, or of a `fresh` one put
    them there; of as many tiles as there are at the edges."""
    (row, column), schedule, spec = at, context.schedule, context.spec

    def block(down: int, across: int) -> None:
        shape, width = context.block(down, across), schedule.width
        builder = context.builder
        sums = shape.zeros(builder) if fresh else shape.read(builder, place, width)
        for one, other in spec.planes.pairs:
            a = operands[0][one].fetch(builder, row * schedule.down)
            b = operands[1][other].fetch(builder, column * schedule.across)
            sums = shape.sum_products(builder, *depth, a, b, sums)
        shape.write(builder, place, width, sums)

    def rows(down: int) -> None:
        tiles = ceildiv(spec.n, WORDS)
        choose(context.builder, _counts(tiles, column, schedule.across, lambda n: block(down, n)))

    tiles = ceildiv(spec.m, schedule.height)
    choose(context.builder, _counts(tiles, row, schedule.down, rows))


def _counts(tiles: Dim, block: Dim, most: int, emit: Callable[[int], None]) -> list[Choice]:
    """`emit` for as many of `most` tiles as block number `block` of an axis of so many has."""
    if mod(tiles, most) == 0:
        return [(None, lambda: emit(most))]
    if isinstance(tiles, int):
        full, rest = divmod(tiles, most)
        edge = (None, lambda: emit(rest))
        return [(full - block, lambda: emit(most)), edge] if full else [edge]
    left = tiles - block * most

    def exactly(count: int) -> Callable[[], None]:
        return lambda: emit(count)

    return [
        *((left - count + 1, exactly(count)) for count in range(most, 1, -1)),
        (None, exactly(1)),
    ]


# ---- operands -------------------------------------------------------------------------------


def _tiles_of_a(context: TiledContext) -> list[TilesInMemory]:
    """The planes of A. Emits the copies of the task's rows."""
    spec, schedule, scratch = context.spec, context.schedule, context.scratch
    kind, group = context.block(1, 1).a, spec.group
    planes = spec.planes.a
    if schedule.a is ReadA.PACKED:
        return [_packed(context, operand, kind, 0) for operand in planes]
    if schedule.a is ReadA.IN_PLACE:
        return [_in_place(context, operand, kind) for operand in planes]
    size = schedule.row_tiles * schedule.down * context.depth * TILE_WORDS
    first = context.first_row_tile * schedule.rows

    def place(plane: int, row: Dim, k: Dim) -> Dim:
        tile = floordiv(row, TILE_ROWS) * context.depth + k
        inside = mod(row, TILE_ROWS) * WORDS
        return scratch.a + plane * size + tile * TILE_WORDS + inside

    count = at_most(schedule.row_tiles * schedule.rows, spec.m, first)
    part = Part(first, count, 0, context.depth)
    copy_a_tiles(context, _source(context, planes, spec.m), part, place)
    start = context.first_row_tile * schedule.down
    return [
        TilesInMemory(
            SCRATCH, kind, lambda row, k, n=n: group * place(n, (row - start) * TILE_ROWS, k),
            WORDS * group,
        )
        for n in range(len(planes))
    ]  # fmt: skip


def _tiles_of_b(context: TiledContext, column: Dim, start: Dim, stop: Dim) -> list[TilesInMemory]:
    """The planes of a block's columns, tiles [start, stop) along k. Emits their copies."""
    spec, schedule, scratch = context.spec, context.schedule, context.scratch
    kind, group = context.block(1, 1).b, spec.group
    planes = spec.planes.b
    if schedule.b is ReadB.PACKED:
        matrix = 0 if spec.rows is None else ravel(context.batch, spec.batch)
        return [_packed(context, each, kind, matrix * ceildiv(spec.n, WORDS)) for each in planes]
    depth = schedule.depth_block or context.depth
    size = schedule.across * depth * TILE_WORDS

    def place(plane: int, outer: Dim, k: Dim) -> Dim:
        tile = floordiv(outer, WORDS) * depth + k - start
        return scratch.b + plane * size + tile * TILE_WORDS

    first = column * schedule.width
    part = Part(first, at_most(schedule.width, spec.n, first), start, stop)
    copy_b_tiles(context, _source(context, planes, spec.n), part, place)
    from_tile = column * schedule.across
    return [
        TilesInMemory(
            SCRATCH, kind, lambda at, k, n=n: group * place(n, (at - from_tile) * WORDS, k),
            WORDS * group,
        )
        for n in range(len(planes))
    ]  # fmt: skip


def _source(context: TiledContext, planes: tuple[Operand, ...], outer: Dim) -> TileSource:
    along, words = planes[0].contiguous_along, context.spec.depth
    return TileSource(tuple(map(loader, planes)), along, context.batch, outer, words)


def _in_place(context: TiledContext, operand: Operand, kind: VType) -> TilesInMemory:
    """Rows of A where they lie."""
    if operand.rows is None:
        raise ValueError("the schedule does not fit the contraction: A's rows are not aligned")
    rows, words = operand.rows, WORDS * context.spec.group

    def place(tile: Dim, k: Dim) -> Dim:
        return rows.first(context.batch, tile * context.schedule.height) + k * words

    return TilesInMemory(rows.buffer(), kind, place, rows.stride)


def _packed(context: TiledContext, operand: Operand, kind: VType, first: Dim) -> TilesInMemory:
    """Constants, tile after tile along k, for each tile of rows or columns from number `first`."""
    if operand.packed is None:
        raise ValueError("the schedule does not fit the contraction: an operand is not packed")
    group = context.spec.group

    def place(outer: Dim, k: Dim) -> Dim:
        return ((first + outer) * context.depth + k) * (TILE_WORDS * group)

    return TilesInMemory(operand.packed, kind, place, WORDS * group)
