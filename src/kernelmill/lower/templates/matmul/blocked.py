"""The blocked schedule: register tiles whose sums stay in registers while k runs.

Rules follow from the processor's vectors and caches, and from known sizes. Costs are nanoseconds of
one core by the rates of `Machine`; moves of elements count as vector operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from statistics import fmean

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.axes import part_count, size_hint
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.packed import PackedWeights, is_half, widening_pays, widening_shows
from kernelmill.lower.schedule.candidate import OPEN, Candidate, first_of, threads_ns, tile_ns
from kernelmill.lower.templates.matmul.blocked_tiles import (
    BlockedTiles,
    FromRegisters,
    InDepthBlocks,
    ReadA,
    ReadB,
    ThroughScratch,
)
from kernelmill.lower.templates.matmul.context import BlockedContext, emit_rows
from kernelmill.lower.templates.matmul.emit_blocked import emit_blocked
from kernelmill.lower.templates.matmul.packing import Packable, ProductSizes, pack_panels
from kernelmill.lower.templates.matmul.spec import Contraction, Operand
from kernelmill.lower.templates.matmul.tile_schedule import (
    TaskPlace,
    TaskTime,
    TileSchedule,
    vector_work,
)


def blocked_loss(
    shared: tuple[BlockedTiles, TaskTime], alone: tuple[BlockedTiles, TaskTime],
    spec: Contraction, machine: Machine,
) -> float:  # fmt: skip
    """Return the `TileSchedule.loss` of two schedules with the times of their tasks at the sizes of
    `spec`."""
    if _reads(shared[0]) != _reads(alone[0]):
        return math.inf
    late = alone[0].b is ReadB.PREFETCH and shared[0].b is not ReadB.PREFETCH
    return _spent(*shared, spec, machine, late) / _spent(*alone, spec, machine, False) - 1


def _reads(schedule: BlockedTiles) -> tuple[object, ...]:
    """Return the properties that two schedules must share for their costs to be compared."""
    a = ReadA.IN_PLACE if schedule.a is ReadA.PREFETCH else schedule.a
    b = ReadB.PACKED if schedule.b is ReadB.PREFETCH else schedule.b
    return (
        schedule.lanes, schedule.vectors, a, b, schedule.widened, schedule.sums, schedule.use_fma
    )  # fmt: skip


def _spent(
    schedule: BlockedTiles, task: TaskTime, spec: Contraction, machine: Machine, late: bool
) -> float:
    """Return nanoseconds, summed over numbers of threads; B is waited for if it comes `late`."""
    assert isinstance(spec.m, int) and isinstance(spec.n, int) and isinstance(spec.depth, int)
    down, across = part_count(spec.m, schedule.rows), part_count(spec.n, schedule.width)
    column_tiles = min(schedule.column_tiles, across)
    times = _row_blocks(schedule, task, spec, machine, down, column_tiles)
    one = fmean(times)
    if late:
        one += _streaming(schedule, spec, machine, column_tiles) / len(times)
    batch = prod(size for size in spec.batch if isinstance(size, int))
    tasks = batch * len(times) * part_count(across, column_tiles)
    return threads_ns(tasks, one)


def _row_blocks(
    schedule: BlockedTiles, task: TaskTime, spec: Contraction, machine: Machine, down: int,
    column_tiles: int,
) -> list[float]:  # fmt: skip
    """Return the nanoseconds of consecutive tasks with the same columns, for which B comes from
    memory once if the second-level cache holds it."""
    assert isinstance(spec.m, int) and isinstance(spec.depth, int)
    each = min(schedule.row_tiles, down)
    full, rest = divmod(down, each)
    times = [task(each, column_tiles)] * full + [task(rest, column_tiles)] * (rest > 0)
    if _bytes_of_b(schedule, spec, column_tiles) <= machine.l2_bytes:
        streamed = _streaming(schedule, spec, machine, column_tiles)
        times[1:] = [time - streamed for time in times[1:]]
    rows = schedule.rows - (down * schedule.rows - spec.m)
    saved = tile_ns(schedule.rows, schedule.vectors, machine) - tile_ns(
        rows, schedule.vectors, machine
    )
    times[-1] -= saved * spec.depth * column_tiles
    return times


def _streaming(
    schedule: BlockedTiles, spec: Contraction, machine: Machine, column_tiles: int
) -> float:
    return machine.streaming(_bytes_of_b(schedule, spec, column_tiles))


def _bytes_of_b(schedule: BlockedTiles, spec: Contraction, column_tiles: int) -> int:
    assert isinstance(spec.depth, int)
    return column_tiles * schedule.width * spec.depth * spec.accumulate.bytes


_WIDEST = 4

_ROWS = {32: (16, 12, 8, 6), 16: (10, 6, 4, 2)}
"""Rows of the largest register tile of 1, 2, 3 and 4 vectors, by the number of registers: its sums,
one row of B and a broadcast element of A stay in registers."""

_MOST_ROWS = max(_ROWS[32])

_DIRECT_ROWS = 8
"""Most rows when A is read where it lies: rows a page apart share a cache set of 8 to 12 ways."""

_PANELS_COLUMNS = 64
"""Least number of columns from which panels of A's rows pay off if lanes are operands, and widening
them in scratch if loads are."""

_SHALLOW = 32
"""Depth up to which the way of sums through scratch takes notable time."""

_STRIDED_DEPTH = 1024
"""Most k whose elements of A may be a row apart each: that is as many cache lines in use."""


@dataclass(frozen=True)
class Panels:
    """Panels of B, of so many columns, or else of A, of so many rows, in another `dtype` if one is
    given."""

    b: int
    a: int
    dtype: DType | None = None

    def pack(self, product: Packable) -> PackedWeights:
        """Pack an operand that is constant, and the same for every batch index."""
        if product.computes_b:
            return product.pack_leaves(self.b)
        roles, unit = product.roles, product.unit
        b = pack_panels(product.context, roles.right, self.b, unit, product.each)
        if b is not None or not unit.a.is_float or product.each:
            return PackedWeights(b=b, packing=self)
        a = pack_panels(product.context, roles.left, self.a, unit, dtype=self.dtype)
        return PackedWeights(a=a, packing=self)


class Blocked(BlockedTiles):
    """Every contraction can be done so."""

    @classmethod
    def plan(cls, spec: Contraction, machine: Machine, candidate: Candidate = OPEN) -> Blocked:
        """Plan the cheapest register tile, and read operands and cut tasks as pays."""
        if spec.rows is not None:
            schedule = _plan(spec.of_one, machine, candidate)
            return replace(schedule, work=vector_work(spec, schedule.lanes, machine))
        return _plan(spec, machine, candidate)

    @classmethod
    def layout(cls, product: Packable, machine: Machine, candidate: Candidate) -> Panels | None:
        """Return the layout in panels as wide as the register tile that constant operands get."""
        sizes, unit = product.sizes, product.unit
        vectors, _ = _register_tile(replace(sizes, shared_b=True), unit, machine, candidate)
        wide, rows = _register_tile(replace(sizes, packed_a=True), unit, machine, candidate)
        lanes = machine.isa.lanes(sizes.accumulate)
        half = unit.group == 1 and is_half(product.roles.a.dtype)
        dtype = sizes.accumulate if half and widening_pays(sizes.n, wide * lanes, machine) else None
        return Panels(vectors * lanes, rows, dtype)

    def candidates(self, spec: Contraction) -> Sequence[Candidate]:
        """Return other register tiles too."""
        return first_of(register_tiles(spec, self), self.other_tasks(spec))

    def loss(self, alone: TileSchedule, spec: Contraction, machine: Machine) -> float:
        """Return the loss by the times of the tasks of both."""
        if not isinstance(alone, BlockedTiles):
            return math.inf
        shared, own = _task_ns(self, spec, machine), _task_ns(alone, spec, machine)
        return blocked_loss((self, shared), (alone, own), spec, machine)

    def emit(self, place: TaskPlace) -> None:
        """Emit all of a task's tiles."""
        emit_rows(BlockedContext.at(place, self), place.number, emit_blocked)


def _plan(spec: Contraction, machine: Machine, candidate: Candidate) -> Blocked:
    lanes = machine.isa.lanes(spec.accumulate)
    vectors, rows = _register_tile(ProductSizes.of(spec), spec.unit, machine, candidate)
    one_tile = isinstance(spec.m, int) and spec.m <= rows
    # Of words with pairs LLVM copies each lane before it multiplies.
    numbers = spec.group == 4 or (spec.group == 1 and spec.accumulate.is_float)
    lane_operand = machine.isa.has_lane_operand and numbers and not spec.unit.on_blocks
    a = _read_a(spec, lane_operand and rows >= lanes, machine)
    shallow = spec.group == 1 and size_hint(spec.depth) <= _SHALLOW
    schedule = Blocked(
        lanes=lanes,
        rows=rows,
        vectors=vectors,
        a=a,
        b=_read_b(spec, machine, rows),
        sums=FromRegisters() if rows == 1 and one_tile and shallow else ThroughScratch(),
        use_fma=machine.isa.has_fma and spec.accumulate.is_float,
        work=vector_work(spec, lanes, machine),
        by_lane=lane_operand and a in (ReadA.PACKED, ReadA.PANELS),
    )
    if one_tile:
        schedule = replace(schedule, streams_b=_streams_b(schedule, spec, machine))
        return schedule.cut(spec, _task_ns(schedule, spec, machine), candidate)
    block = candidate.depth_block or _choose_depth_block(spec, machine, schedule.panel_stride(spec))
    if block:
        schedule = replace(schedule, sums=InDepthBlocks(block))
    schedule = schedule.cut(spec, _task_ns(schedule, spec, machine), candidate)
    if _prefetches_a(schedule, spec, machine):
        schedule = replace(schedule, a=ReadA.PREFETCH)
    if _prefetches_b(schedule, spec, machine):
        schedule = replace(schedule, b=ReadB.PREFETCH)
    broadcast = not machine.isa.has_lane_operand
    if (schedule.by_lane or broadcast) and _widens_b(schedule, spec, machine):
        a = ReadA.COPIED if spec.unit.halves else schedule.a
        schedule = replace(schedule, widened=True, a=a)
    return schedule


# ---- the register tile ----------------------------------------------------------------------


def _register_tile(
    sizes: ProductSizes, unit: DotUnit, machine: Machine, candidate: Candidate
) -> tuple[int, int]:
    """Return the tile's vectors and rows: those of whole blocks if the unit works on these."""
    most = len(_ROWS[machine.isa.vector_registers])
    vectors = min(candidate.vectors or _choose_vectors(sizes, unit, machine), most)
    limit = min(_row_limit(sizes, unit, machine, vectors), candidate.rows or _MOST_ROWS)
    rows = _choose_rows(sizes.m, limit, vectors, machine)
    return vectors, part_count(rows, unit.rows) * unit.rows


def _row_limit(sizes: ProductSizes, unit: DotUnit, machine: Machine, vectors: int) -> int:
    limit = _ROWS[machine.isa.vector_registers][vectors - 1]
    if unit.halves:  # multiplies and adds in two instructions, with a register between them
        limit = min(limit, (machine.isa.vector_registers - 2) // vectors - 1)
    return limit if sizes.packed_a else min(limit, _DIRECT_ROWS)


def _choose_vectors(sizes: ProductSizes, unit: DotUnit, machine: Machine) -> int:
    """Choose the fewest cycles for a row of C. A packed B has one width whatever m is."""
    if not isinstance(sizes.n, int):
        return 2
    count = part_count(sizes.n, machine.isa.lanes(sizes.accumulate))
    most = max(_ROWS[32]) if sizes.shared_b else size_hint(sizes.m)

    bytes = sizes.accumulate.bytes
    streamed = machine.streaming(bytes) if _streams_a(sizes, machine) else 0.0

    def spent(vectors: int) -> float:
        rows = min(most, _row_limit(sizes, unit, machine, vectors))
        full, rest = divmod(count, vectors)
        last = tile_ns(rows, rest, machine) if rest else 0
        sums = (full * tile_ns(rows, vectors, machine) + last) / rows
        return sums + part_count(count, vectors) * streamed

    return min((v for v in (3, 2, 4, 1) if v <= count), key=spent)


def _streams_a(sizes: ProductSizes, machine: Machine) -> bool:
    """Return whether A is constant and is read from beyond the L2 cache for each column tile."""
    bytes = size_hint(sizes.m) * size_hint(sizes.depth) * sizes.accumulate.bytes
    return sizes.packed_a and bytes > machine.l2_bytes


def _choose_rows(m: Dim, limit: int, vectors: int, machine: Machine) -> int:
    """Choose rows of the tile: all of them, or the number that leaves the cheapest rest."""
    if not isinstance(m, int):
        return min(limit, _DIRECT_ROWS)
    if m <= limit:
        return max(m, 1)

    def spent(rows: int) -> float:
        full, rest = divmod(m, rows)
        last = tile_ns(rest, vectors, machine) if rest else 0
        return full * tile_ns(rows, vectors, machine) + last

    return min(range(limit, max(1, limit * 2 // 3) - 1, -1), key=spent)


# ---- where operands are read ----------------------------------------------------------------


def _read_a(spec: Contraction, panels: bool, machine: Machine) -> ReadA:
    if spec.a.packed is not None:
        return ReadA.PACKED
    if spec.unit.on_blocks:
        return ReadA.COPIED if spec.a.contiguous_along == Along.OUTER else ReadA.PANELS
    along = spec.a.contiguous_along in (Along.K, Along.OUTER)
    many = size_hint(spec.n) >= _PANELS_COLUMNS
    if panels and along and many:
        return ReadA.PANELS
    apart = widening_shows(machine) and not machine.isa.has_lane_operand
    widened = apart and many and spec.a.half and spec.group == 1
    return ReadA.IN_PLACE if spec.a.direct and not widened else ReadA.COPIED


def _read_b(spec: Contraction, machine: Machine, rows: int) -> ReadB:
    if spec.b.packed is not None:
        return ReadB.PACKED
    if spec.b.source is not None:
        return ReadB.FILLED
    return ReadB.COPIED if _must_copy_b(spec, machine, rows) else ReadB.IN_PLACE


def _must_copy_b(spec: Contraction, machine: Machine, rows: int) -> bool:
    """Return whether B is copied to scratch: to transpose it, or since it is read often."""
    if spec.b.contiguous_along == Along.K or spec.group > 1:
        return True
    if isinstance(spec.m, int) and spec.m <= rows:
        return False
    if not spec.b.direct:
        return True
    if spec.b.half and widening_pays(spec.m, rows, machine):
        return True
    if not isinstance(spec.n, int) or not isinstance(spec.depth, int):
        return True
    return _bytes(spec, spec.n) > machine.l2_bytes // 4


def _prefetches_b(schedule: Blocked, spec: Contraction, machine: Machine) -> bool:
    """Return whether panels of constants come from far, each for several tiles at a time."""
    whole = schedule.b is ReadB.PACKED and not schedule.depth_block and schedule.row_tiles > 1
    return whole and _is_far(spec, machine)


def _is_far(spec: Contraction, machine: Machine) -> bool:
    """Return whether B is larger than the share of a core's caches that it is likely to have."""
    return _bytes(spec, size_hint(spec.n)) > machine.l2_bytes // 4


def _streams_b(schedule: Blocked, spec: Contraction, machine: Machine) -> bool:
    """Return whether panels of constants, or of B's leaves, come from far to be read once."""
    once = schedule.b in (ReadB.PACKED, ReadB.IN_PLACE) and not spec.dot_i8
    return once and spec.b.panels is not None and _is_far(spec, machine)


def _widens_b(schedule: Blocked, spec: Contraction, machine: Machine) -> bool:
    """Return whether panels of constants are of a half type, or of words that are multiplied by
    halves, each to be read by several tiles. For words an unknown number of rows counts as many:
    few rows lose less by that than many rows would lose without."""
    packed = schedule.b in (ReadB.PACKED, ReadB.PREFETCH)
    half = spec.b.half and spec.group == 1 and isinstance(spec.m, int)
    words = bool(spec.unit.halves) and spec.a.contiguous_along == Along.K
    if not (packed and (half or words)):
        return False
    most = schedule.row_tiles * schedule.rows
    return widening_pays(min(size_hint(spec.m), most), schedule.rows, machine)


def _prefetches_a(schedule: Blocked, spec: Contraction, machine: Machine) -> bool:
    """Return whether rows of A come from far, each tile's anew."""
    known = spec.a.prefetch is not None and len(spec.k) == 1
    in_place = schedule.a is ReadA.IN_PLACE and known
    again = schedule.row_tiles > 1 and not schedule.depth_block
    return in_place and again and _bytes(spec, size_hint(spec.m)) > machine.l2_bytes // 2


def _choose_depth_block(spec: Contraction, machine: Machine, width: int) -> int:
    """Keep a panel of B within most of the second-level cache, and rows of A within the first.

    Where A is streamed in, in the order in which it is packed, a panel somewhat too large costs
    less than jumps in that stream.
    """
    if not isinstance(spec.depth, int):
        return 0
    first = size_hint(spec.k[0])
    most = first
    room = (
        machine.l2_bytes * 2
        if _streams_a(ProductSizes.of(spec), machine)
        else machine.l2_bytes * 3 // 4
    )
    if _bytes(spec, width) > room:
        most = max(1, machine.l2_bytes // 4 * first // _bytes(spec, width))
    strided = spec.a.packed is None and spec.a.contiguous_along == Along.OUTER
    if strided and spec.depth > _STRIDED_DEPTH:
        most = min(most, max(1, _STRIDED_DEPTH // 2 * first // spec.depth))
    return 0 if most == first else part_count(first, part_count(first, most))


def _bytes(spec: Contraction, outer: int) -> int:
    return outer * size_hint(spec.depth) * spec.element.bytes


# ---- tasks ----------------------------------------------------------------------------------


def _task_ns(schedule: BlockedTiles, spec: Contraction, machine: Machine) -> TaskTime:
    """Return the nanoseconds of a task by its row tiles and column tiles."""
    depth = size_hint(spec.depth)
    tile = tile_ns(schedule.rows, schedule.vectors, machine)
    copies_a = schedule.a in (ReadA.COPIED, ReadA.PANELS)
    copy_a = _copying(spec.a, (Along.OUTER, Along.K), schedule.lanes) if copies_a else 0.0

    @cache
    def panels(column_tiles: int) -> tuple[float, float]:
        """Return nanoseconds of streaming B in, and of making its panels."""
        elements = column_tiles * schedule.width * depth
        streamed = machine.streaming(elements * spec.element.bytes)
        if schedule.b is ReadB.FILLED:
            made = _source_operations(replace(schedule, column_tiles=column_tiles), spec)
            return streamed, machine.time(made, {})
        if schedule.b is ReadB.COPIED:
            made = elements * _copying(spec.b, (Along.OUTER,), schedule.lanes)
            return streamed, machine.time(made, {})
        return streamed, 0.0

    def spent(row_tiles: int, column_tiles: int) -> float:
        streamed, made = panels(column_tiles)
        sums = row_tiles * column_tiles * depth * tile + machine.task_ns
        copied = machine.time(row_tiles * schedule.rows * depth * copy_a, {})
        return sums + streamed + made + copied

    return spent


def _source_operations(schedule: BlockedTiles, spec: Contraction) -> float:
    """Return vector operations for a task's panels and the input that their source keeps."""
    source, kept = spec.b.source, schedule.kept(spec)
    assert source is not None and kept is not None
    rows = schedule.column_tiles * size_hint(spec.depth)
    times = schedule.column_tiles if schedule.depth_block else 1
    filled = 10 * times * size_hint(kept.elements) / schedule.lanes
    return rows * source.row_operations(schedule.width, schedule.run(spec)) + filled


def _copying(operand: Operand, along: tuple[Along, ...], lanes: int) -> float:
    """Return vector operations for each element that moves into scratch; few where vectors run
    `along` memory."""
    if operand.contiguous_along not in along:
        return 2.0
    return (4 if operand.direct else 24) / lanes


def register_tiles(spec: Contraction, schedule: Blocked) -> Iterator[Candidate]:
    """Yield other register tiles, and with them other blocks along k."""
    count = part_count(size_hint(spec.n), schedule.lanes)
    for vectors in sorted(range(1, _WIDEST + 1), key=lambda v: abs(v - schedule.vectors)):
        if vectors != schedule.vectors and vectors <= count:
            yield Candidate(vectors=vectors)
    first = size_hint(spec.k[0])
    block = schedule.depth_block or first
    for depth in (block // 2, block * 2):
        if not 32 <= depth < first or size_hint(spec.m) <= schedule.rows:
            continue
        yield Candidate(depth_block=depth)
    for rows in (schedule.rows - 1, schedule.rows - 2):
        if rows >= 2 and size_hint(spec.m) > schedule.rows:
            yield Candidate(rows=rows)
