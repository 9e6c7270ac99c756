"""The tiled schedule: blocks of tiles of sums on a unit that multiplies tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, maximum, minimum, mod
from kernelmill.core.target.dot_units import TILE_BF16, TILE_ROWS
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.ir import SCRATCH, VType
from kernelmill.lower.elements.axes import part_count, size_hint
from kernelmill.lower.elements.views import ravel
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import choose_count
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.emit.pieces import DEPTH
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
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.blocked_tiles import (
    InDepthBlocks,
    ReadA,
    ReadB,
    ThroughScratch,
)
from kernelmill.lower.templates.matmul.context import ContractionContext, count_within, emit_rows
from kernelmill.lower.templates.matmul.packing import Packable, are_known
from kernelmill.lower.templates.matmul.pieced import PieceLayout, is_ordinary
from kernelmill.lower.templates.matmul.spec import Contraction, Operand, loader
from kernelmill.lower.templates.matmul.tile_schedule import (
    TaskPlace,
    TaskTime,
    TileSchedule,
    estimated_work,
)
from kernelmill.lower.weights.panel_views import tile_view_of_a, tile_view_of_b

_WIDE = 4
"""Tiles of a block of one row tile: with A's tile and one of B's they leave registers free."""

_DIRECT, _COMPUTED = 2.0, 24.0
"""Vector operations for each vector of words that is copied into tiles, by how it is read."""

_TURNED = 6.0
"""The same where blocks are turned in registers, or numbers of several rows put into words."""

_EXACT_ROWS = 12
"""Most rows of a register tile of two vectors (blocked.py) for numbers that are not ordinary."""

_EXACT_DEPTH = DEPTH // (WORDS * TILE_BF16.group)
"""Most tiles along k of planes that are summed at a time."""


@dataclass(frozen=True)
class TileLayout:
    """Tiles of B, or else of A."""

    def pack(self, product: Packable) -> PackedWeights:
        """Pack an operand that is constant, and the same for every batch index."""
        roles, unit, each = product.roles, product.unit, product.each
        context, origin = product.context, product.origin
        if product.computes_b:
            return product.pack_leaves(unit.columns)
        if are_known(roles.n, *roles.k, *(roles.batch if each else ())):
            view = tile_view_of_b(roles.right, unit, origin, each)
            b = None if view is None else context.pack(view)
            if b is not None:
                return PackedWeights(b=b, packing=self)
        if each or not are_known(roles.m, *roles.k):
            return PackedWeights()
        view = tile_view_of_a(roles.left, unit, origin)
        return PackedWeights(a=None if view is None else context.pack(view), packing=self)


@dataclass(frozen=True)
class TiledScratch:
    """The offsets of regions in a thread's scratch, in words of 4 bytes.

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


@dataclass(frozen=True, kw_only=True)
class Tiled(TileSchedule):
    """Blocks of tiles of sums stay in registers while k runs, and go to `store` through scratch. A
    block is what other schedules have as a tile: a vector is a tile's columns.

    height       rows of a tile of sums: all that there are, or those of whole tiles
    a, b         where tiles are read: PACKED or COPIED, and A's IN_PLACE
    depth_block  tiles along k at a time for all blocks of a task, whose sums grow in scratch; 0:
                 all of them, block by block. Of planes the sums of each such block begin anew, so
                 that small products are not lost in large sums, and are added to those before
    exact        for planes that are pieces of f32: what does tasks whose numbers are not ordinary
                 (emit/pieces.py), cut alike
    """

    height: int
    a: ReadA
    b: ReadB
    depth_block: int
    exact: Blocked | None = None

    any_rows = True

    def __post_init__(self) -> None:
        if self.a is ReadA.PREFETCH or self.b not in (ReadB.PACKED, ReadB.COPIED):
            raise ValueError(f"tiles are not read as {self.a} and {self.b}")

    @property
    def down(self) -> int:
        """Tiles of a block along m."""
        return self.rows // self.height

    def scratch(self, spec: Contraction) -> TiledScratch:
        """Return the regions of a thread's scratch, each on a cache line of its own."""
        blocks = self.row_tiles if self.depth_block else 1
        block = self.rows * self.width
        part = blocks * block
        a = part + (block if self.depth_block and spec.split else 0)
        tiles, planes = depth_tiles(spec.depth) * TILE_WORDS, spec.planes
        copied = self.row_tiles * self.down * tiles if self.a is ReadA.COPIED else 0
        b = a + len(planes.a) * copied
        depth = self.depth_block * TILE_WORDS or tiles
        panel = self.vectors * depth if self.b is ReadB.COPIED else 0
        return TiledScratch(0, part, a, b, b + len(planes.b) * panel)

    def scratch_bytes(self, spec: Contraction) -> Dim:
        """Return the bytes of a thread's scratch, which `exact` uses from its beginning too."""
        own = self.scratch(spec).end * 4
        if self.exact is None or spec.exact is None:
            return own
        return maximum(own, self.exact.scratch_bytes(spec.exact.contraction))

    @classmethod
    def plan(cls, spec: Contraction, machine: Machine, candidate: Candidate = OPEN) -> Tiled | None:
        """Plan the schedule where the unit works on tiles, else None."""
        if not spec.unit.on_tiles:
            return None
        schedule = _plan(spec, machine, candidate)
        exact = None if spec.exact is None else _exact(schedule, spec.exact.contraction)
        return replace(schedule, exact=exact)

    @classmethod
    def layout(
        cls, product: Packable, machine: Machine, candidate: Candidate
    ) -> TileLayout | PieceLayout | None:
        """Return the layout in tiles, None for a unit that does not work on tiles."""
        if product.pieces is not None:
            return PieceLayout(product.pieces)
        return TileLayout() if product.unit.on_tiles else None

    def emit(self, place: TaskPlace) -> None:
        """Emit all of a task's blocks."""
        if self.exact is None or place.spec.exact is None:
            self._emit_tiles(place)
            return
        with place.builder.when(is_ordinary(place, self, place.spec.exact)) as branch:
            self._emit_tiles(place)
        with place.builder.otherwise(branch):
            self.exact.emit(replace(place, spec=place.spec.exact.contraction))

    def _emit_tiles(self, place: TaskPlace) -> None:
        emit_rows(TiledContext.at(place, self), place.number, emit_tiled)


class TiledContext(ContractionContext[Tiled]):
    """The emit context of a tiled contraction."""

    @property
    def scratch(self) -> TiledScratch:
        """The regions of scratch."""
        return self.schedule.scratch(self.spec)

    @property
    def depth(self) -> Dim:
        """Tiles along k."""
        return depth_tiles(self.spec.depth)

    def block(self, down: int, across: int) -> TileBlock:
        """Return a block of so many tiles."""
        return TileBlock(self.spec.unit, down, across, self.schedule.height)


def emit_tiled(context: TiledContext) -> None:
    """Emit all of a task's blocks."""
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
        context.store_tile(row, column, place)


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
        context.store_tile(row, column, place(row))


def _add(context: TiledContext, source: Dim, target: Dim, count: int) -> None:
    """Add `count` sums in scratch to others."""
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
            b = operands[1][other].fetch(builder, column * schedule.vectors)
            sums = shape.sum_products(builder, *depth, a, b, sums)
        shape.write(builder, place, width, sums)

    def rows(down: int) -> None:
        tiles = ceildiv(spec.n, WORDS)
        choose_count(context.builder, tiles, column, schedule.vectors, partial(block, down))

    tiles = ceildiv(spec.m, schedule.height)
    choose_count(context.builder, tiles, row, schedule.down, rows)


# ---- operands -------------------------------------------------------------------------------


def _tiles_of_a(context: TiledContext) -> list[TilesInMemory]:
    """Return the planes of A. Emits the copies of the task's rows."""
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

    count = count_within(schedule.row_tiles * schedule.rows, spec.m, first)
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
    """Return the planes of a block's columns, tiles [start, stop) along k. Emits their copies."""
    spec, schedule, scratch = context.spec, context.schedule, context.scratch
    kind, group = context.block(1, 1).b, spec.group
    planes = spec.planes.b
    if schedule.b is ReadB.PACKED:
        matrix = ravel(context.batch, spec.batch) if spec.b.each else 0
        return [_packed(context, each, kind, matrix * ceildiv(spec.n, WORDS)) for each in planes]
    depth = schedule.depth_block or context.depth
    size = schedule.vectors * depth * TILE_WORDS

    def place(plane: int, outer: Dim, k: Dim) -> Dim:
        tile = floordiv(outer, WORDS) * depth + k - start
        return scratch.b + plane * size + tile * TILE_WORDS

    first = column * schedule.width
    part = Part(first, count_within(schedule.width, spec.n, first), start, stop)
    copy_b_tiles(context, _source(context, planes, spec.n), part, place)
    from_tile = column * schedule.vectors
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
    if operand.rows is None:
        raise ValueError("the schedule does not fit the contraction: A's rows are not aligned")
    rows, words = operand.rows, WORDS * context.spec.group

    def place(tile: Dim, k: Dim) -> Dim:
        return rows.first(context.batch, tile * context.schedule.height) + k * words

    return TilesInMemory(rows.buffer(), kind, place, rows.stride)


def _packed(context: TiledContext, operand: Operand, kind: VType, first: Dim) -> TilesInMemory:
    """Return tiles of constants, contiguous along k, for rows or columns from `first` on."""
    if operand.packed is None:
        raise ValueError("the schedule does not fit the contraction: an operand is not packed")
    group = context.spec.group

    def place(outer: Dim, k: Dim) -> Dim:
        return ((first + outer) * context.depth + k) * (TILE_WORDS * group)

    return TilesInMemory(operand.packed, kind, place, WORDS * group)


# ---- the cost model ---------------------------------------------------------------------------


def _plan(spec: Contraction, machine: Machine, candidate: Candidate) -> Tiled:
    if spec.rows is not None:
        return replace(_plan(spec.of_one, machine, candidate), work=_work(spec, machine))
    few = isinstance(spec.m, int) and spec.m <= TILE_ROWS
    height = max(1, spec.m) if few and isinstance(spec.m, int) else TILE_ROWS
    columns = part_count(size_hint(spec.n), WORDS)
    schedule = Tiled(
        lanes=WORDS,
        rows=height if few else 2 * height,
        vectors=min(columns, _WIDE if few else 2) if isinstance(spec.n, int) else 2,
        height=height,
        a=_read_a(spec, height),
        b=ReadB.COPIED if spec.planes.b[0].packed is None else ReadB.PACKED,
        depth_block=0,
        work=_work(spec, machine),
    )
    if spec.split is not None:
        schedule = replace(schedule, depth_block=_exact_depth_block(spec))
    elif not isinstance(spec.m, int) or spec.m > schedule.rows:
        block = candidate.depth_block or _depth_block(schedule, spec, machine)
        schedule = replace(schedule, depth_block=block)
    return schedule.cut(spec, _task_ns(schedule, spec, machine), candidate)


def _exact(tiled: Tiled, exact: Contraction) -> Blocked:
    """Return the schedule of the exact contraction that has the same tasks."""
    rows = next(n for n in range(_EXACT_ROWS, 0, -1) if tiled.rows % n == 0)
    (k,) = exact.k
    deep = not isinstance(k, int) or k > DEPTH
    return Blocked(
        lanes=tiled.lanes,
        rows=rows,
        vectors=tiled.vectors,
        a=ReadA.IN_PLACE if exact.a.direct else ReadA.COPIED,
        b=ReadB.COPIED,
        sums=InDepthBlocks(DEPTH) if deep else ThroughScratch(),
        use_fma=True,
        work=tiled.work,
        row_tiles=tiled.row_tiles * (tiled.rows // rows),
        column_tiles=tiled.column_tiles,
    )


def _read_a(spec: Contraction, height: int) -> ReadA:
    a = spec.planes.a[0]
    if a.packed is not None:
        return ReadA.PACKED
    whole = isinstance(spec.m, int) and spec.m % height == 0
    return ReadA.IN_PLACE if a.rows is not None and whole else ReadA.COPIED


def _exact_depth_block(spec: Contraction) -> int:
    tiles = depth_tiles(spec.depth)
    if not isinstance(tiles, int):
        return _EXACT_DEPTH
    return 0 if tiles <= _EXACT_DEPTH else part_count(tiles, part_count(tiles, _EXACT_DEPTH))


def _depth_block(schedule: Tiled, spec: Contraction, machine: Machine) -> int:
    """Tiles along k of which a block's columns fill half of the first cache: they stay there while
    rows pass by."""
    room = machine.l1_bytes // 2 // (schedule.vectors * len(spec.planes.b) * TILE_WORDS * 4)
    tiles, room = size_hint(depth_tiles(spec.depth)), max(room, 1)
    if not isinstance(spec.depth, int):
        return room
    return 0 if tiles <= room else part_count(tiles, part_count(tiles, room))


def _task_ns(schedule: Tiled, spec: Contraction, machine: Machine) -> TaskTime:
    """Return the nanoseconds of a task by its blocks along m and along n."""
    depth, planes = size_hint(depth_tiles(spec.depth)), spec.planes
    tiles = schedule.down * schedule.vectors * depth * len(planes.pairs)
    sums = tiles / machine.dot_rate(spec.unit) * schedule.height / TILE_ROWS
    stored = machine.time(4.0 * schedule.rows * schedule.vectors, {})
    row, column = (
        rows * depth * TILE_WORDS * 4 * count
        for rows, count in (
            (schedule.down, len(planes.a)),
            (schedule.vectors, len(planes.b)),
        )
    )
    copy_a = _copying(planes.a[0], Along.K) if schedule.a is ReadA.COPIED else 0.0
    copy_b = _copying(planes.b[0], None) if schedule.b is ReadB.COPIED else 0.0
    line = WORDS * 4

    def spent(row_tiles: int, column_tiles: int) -> float:
        rows, columns = row_tiles * row, column_tiles * column
        again = 1 if rows <= machine.l2_bytes // 2 else column_tiles
        moved = machine.streaming(rows * again + columns)
        copied = machine.time((rows * copy_a + columns * copy_b) / line, {})
        return row_tiles * column_tiles * (sums + stored) + moved + copied + machine.task_ns

    return spent


def _copying(operand: Operand, along: Along | None) -> float:
    """Vector operations for each vector of words that goes into tiles as it is where neighbours
    `along` this are neighbours in memory; with None it never does."""
    if not operand.direct:
        return _COMPUTED
    return _DIRECT if along is not None and operand.contiguous_along is along else _TURNED


def _work(spec: Contraction, machine: Machine) -> Dim:
    unit = spec.unit
    rate = machine.dot_rate(unit) * unit.rows * unit.columns * unit.depth / len(spec.planes.pairs)
    return estimated_work(spec, max(1, round(rate)), 4, machine)
