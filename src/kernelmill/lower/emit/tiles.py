"""Products on a tile unit: blocks of tiles of sums, and operands copied into tiles.

A row of an operand's tile has WORDS words of 4 bytes, each with several neighbours along k. A tile
of A has a row for each of A's rows, a tile of B one for each word along k, with a word for each
column. The rows of a tile are contiguous in memory, and so are tiles along k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum, mod
from kernelmill.core.target.dot_units import TILE_ROW_BYTES, TILE_ROWS, DotUnit
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, Value, VType
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along, LoadElement
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.microkernel import transpose

WORDS = TILE_ROW_BYTES // 4
"""Words of a tile's row."""

TILE_WORDS = TILE_ROWS * WORDS
"""Words of a whole tile."""

FetchTile = Callable[[int, Dim], Value]
"""`fetch(i, k)`: tile `i` of a block's rows or columns at tile number `k` along k."""


def depth_tiles(words: Dim) -> Dim:
    """Return how many tiles hold that many words along k."""
    return ceildiv(words, WORDS)


@dataclass(frozen=True)
class TileBlock:
    """`down` x `across` tiles of sums, each of `height` rows and WORDS columns, which stay in
    registers while k runs."""

    unit: DotUnit
    down: int
    across: int
    height: int

    @property
    def sums(self) -> VType:
        """Type of a tile of sums."""
        return VType(self.unit.sum, WORDS, self.height)

    @property
    def a(self) -> VType:
        """Type of a tile of A."""
        return VType(self.unit.a, WORDS * self.unit.group, self.height)

    @property
    def b(self) -> VType:
        """Type of a tile of B."""
        return VType(self.unit.b, WORDS * self.unit.group, TILE_ROWS)

    def zeros(self, builder: KernelBuilder) -> list[Value]:
        """Return zero sums, row-major."""
        return [builder.tile_zero(self.sums) for _ in range(self.down * self.across)]

    def sum_products(
        self, builder: KernelBuilder, start: Dim, stop: Dim, a: FetchTile, b: FetchTile,
        initial: Sequence[Value],
    ) -> list[Value]:  # fmt: skip
        """Return `initial` plus the products of tiles [start, stop) along k, row-major."""
        carry = [(self.sums, value) for value in initial]
        with builder.loop(start, stop, carry=carry, prefix="k") as loop:
            sums = list(loop.carried)
            rows = [a(i, loop.index) for i in range(self.down)]
            for j in range(self.across):
                # Loaded late: of all the columns there are not enough registers.
                column = b(j, loop.index)
                for place, row in zip(range(j, len(sums), self.across), rows, strict=True):
                    sums[place] = builder.dot(self.unit, row, column, sums[place])
            loop.carry(*sums)
        return list(loop.results)

    def read(self, builder: KernelBuilder, place: Dim, width: int) -> list[Value]:
        """Load the block's sums from scratch, with rows of `width` sums from `place` on."""
        return [
            builder.tile_load(SCRATCH, place + offset, self.sums, width)
            for offset in self._offsets(width)
        ]

    def write(self, builder: KernelBuilder, place: Dim, width: int, values: list[Value]) -> None:
        """Store the block's sums in scratch, as `read` finds them."""
        for offset, value in zip(self._offsets(width), values, strict=True):
            builder.tile_store(SCRATCH, place + offset, value, width)

    def _offsets(self, width: int) -> list[int]:
        row = self.height * width
        return [i * row + j * WORDS for i in range(self.down) for j in range(self.across)]


# ---- operands into tiles --------------------------------------------------------------------

PlaceRow = Callable[[int, Dim, Dim], Dim]
"""`place(plane, outer, k)`: where scratch, in words, has the tile row of A's row `outer`, or the
tile of B's columns from `outer` on, at tile number `k`; `outer` is counted from the first that is
copied."""


@dataclass(frozen=True)
class TileSource:
    """An operand of words that is copied into tiles.

    planes            how its words are read, those of each plane of tiles
    contiguous_along  as of Operand
    outer             rows of A or columns of B
    words             words along k
    """

    planes: tuple[LoadElement, ...]
    contiguous_along: Along | None
    batch: Dims
    outer: Dim
    words: Dim


@dataclass(frozen=True)
class Part:
    """The part of an operand that is copied: `count` rows or columns from `first` on, tiles [start,
    stop) along k."""

    first: Dim
    count: Dim
    start: Dim
    stop: Dim


def copy_a_tiles(context: EmitContext, source: TileSource, part: Part, place: PlaceRow) -> None:
    """Copy rows of A into tiles, zeros behind the last word. The context's lane has WORDS lanes."""
    if source.contiguous_along == Along.OUTER:
        _turned_a(context, source, part, place)
        return
    builder, lane = context.builder, context.lane
    with (
        builder.loop(0, part.count, prefix="m") as row,
        builder.loop(part.start, part.stop, prefix="k") as tile,
    ):
        along = (tile.index * WORDS + lane.index,)
        values = [
            load(builder, source.batch, part.first + row.index, along, lane)
            for load in source.planes
        ]
        for plane, value in enumerate(values):
            builder.store(SCRATCH, place(plane, row.index, tile.index), value)


def _turned_a(context: EmitContext, source: TileSource, part: Part, place: PlaceRow) -> None:
    """Copy rows of A that are contiguous along them: blocks are transposed in registers."""
    builder = context.builder
    with builder.loop(0, ceildiv(part.count, WORDS), prefix="v") as group:
        row = group.index * WORDS
        lane = context.masked(part.count - row, part.count)
        outer = part.first + row + lane.index
        with builder.loop(part.start, part.stop, prefix="k") as tile:
            blocks = [
                [
                    _word(builder, source, load, outer, tile.index * WORDS + i, lane)
                    for i in range(WORDS)
                ]
                for load in source.planes
            ]
            for plane, block in enumerate(blocks):
                for i, value in enumerate(transpose(builder, block)):
                    builder.store(SCRATCH, place(plane, row + i, tile.index), value)


def copy_b_tiles(context: EmitContext, source: TileSource, part: Part, place: PlaceRow) -> None:
    """Copy columns of B into tiles, zeros behind the last word; some behind the last column are
    anything. The context's lane has WORDS lanes."""
    builder = context.builder
    copy = _turned_b if source.contiguous_along == Along.K else _straight_b
    with builder.loop(0, ceildiv(part.count, WORDS), prefix="v") as group:
        copy(context, source, part, group.index * WORDS, place)


def _turned_b(
    context: EmitContext, source: TileSource, part: Part, column: Dim, place: PlaceRow
) -> None:
    """Copy a tile's columns, read along k and transposed in registers."""
    builder, lane = context.builder, context.lane
    columns = [minimum(part.first + column + i, source.outer - 1) for i in range(WORDS)]
    with builder.loop(part.start, part.stop, prefix="k") as tile:
        along = (tile.index * WORDS + lane.index,)
        blocks = [
            [load(builder, source.batch, n, along, lane) for n in columns] for load in source.planes
        ]
        for plane, block in enumerate(blocks):
            for i, value in enumerate(transpose(builder, block)):
                builder.store(SCRATCH, place(plane, column, tile.index) + i * WORDS, value)


def _straight_b(
    context: EmitContext, source: TileSource, part: Part, column: Dim, place: PlaceRow
) -> None:
    """Copy a tile's columns, read side by side."""
    builder = context.builder
    first = part.first + column
    lane = context.masked(source.outer - first, source.outer)
    with (
        builder.loop(part.start, part.stop, prefix="k") as tile,
        builder.loop(0, TILE_ROWS, prefix="w") as row,
    ):
        number = tile.index * WORDS + row.index
        values = [
            _word(builder, source, load, first + lane.index, number, lane) for load in source.planes
        ]
        for plane, value in enumerate(values):
            builder.store(SCRATCH, place(plane, column, tile.index) + row.index * WORDS, value)


def _word(
    builder: KernelBuilder, source: TileSource, load: LoadElement, outer: Dim, number: Dim,
    lane: Lane,
) -> Value:  # fmt: skip
    """Return word `number` along k at `outer`, 0 behind the last."""
    if mod(source.words, WORDS) == 0:
        return load(builder, source.batch, outer, (number,), lane)
    exists = builder.op("lt", builder.index(number), builder.index(source.words))
    at = (minimum(number, source.words - 1),)
    value = load(builder, source.batch, outer, at, lane)
    return builder.op("select", exists, value, 0)


@dataclass(frozen=True)
class TilesInMemory:
    """An operand's tiles in a buffer: `place(outer, k)` is the first element of the tile at tile
    numbers `outer` and `k`, and rows are `stride` elements apart."""

    buffer: str
    type: VType
    place: Callable[[Dim, Dim], Dim]
    stride: Dim

    def fetch(self, builder: KernelBuilder, first: Dim) -> FetchTile:
        """Return a loader of the tiles of a block, whose first is tile number `first`."""
        return lambda i, k: builder.tile_load(
            self.buffer, self.place(first + i, k), self.type, self.stride
        )
