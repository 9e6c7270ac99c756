"""The rules that choose a tiled schedule, by the rates and caches of core/machine.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelmill.core.dim import Dim, floordiv, minimum, product
from kernelmill.core.isa import TILE_BF16, TILE_ROWS
from kernelmill.core.machine import Machine
from kernelmill.lower.elements.sizes import part_count, size_hint
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.pieces import DEPTH
from kernelmill.lower.emit.tiles import TILE_WORDS, WORDS, depth_tiles
from kernelmill.lower.templates.matmul.blocked import ReadA, ReadB
from kernelmill.lower.templates.matmul.candidates import ContractionCandidate
from kernelmill.lower.templates.matmul.heuristics import choose_tasks
from kernelmill.lower.templates.matmul.spec import Contraction, Operand
from kernelmill.lower.templates.matmul.tiled import Tiled

_WIDE = 4
"""Tiles of a block of one row tile: with A's tile and one of B's they leave registers free."""

_DIRECT, _COMPUTED = 2.0, 24.0
"""Vector operations for each vector of words that is copied into tiles, by how it is read."""

_TURNED = 6.0
"""The same where blocks are turned in registers, or numbers of several rows put into words."""

_EXACT_DEPTH = DEPTH // (WORDS * TILE_BF16.group)
"""Most tiles along k of planes that are summed at a time."""


def plan_tiled(
    spec: Contraction, machine: Machine, candidate: ContractionCandidate
) -> Tiled | None:
    """The schedule where the unit works on tiles, with what the candidate settles."""
    if spec.unit.rows == 1:
        return None
    if spec.rows is not None:
        # As for one batch index, whose tasks all threads share.
        one = replace(spec, rows=None, batch=(), m=spec.likely)
        schedule = plan_tiled(one, machine, candidate)
        assert schedule is not None
        matrices = minimum(product(spec.batch), spec.m)
        return replace(schedule, work=_work(spec, spec.m + matrices * spec.n, spec.m, machine))
    few = isinstance(spec.m, int) and spec.m <= TILE_ROWS
    height = max(1, spec.m) if few and isinstance(spec.m, int) else TILE_ROWS
    columns = part_count(size_hint(spec.n), WORDS)
    batch = product(spec.batch)
    schedule = Tiled(
        height=height,
        down=1 if few else 2,
        across=min(columns, _WIDE if few else 2) if isinstance(spec.n, int) else 2,
        a=_read_a(spec, height),
        b=ReadB.COPIED if spec.planes.b[0].packed is None else ReadB.PACKED,
        depth_block=0,
        work=_work(spec, batch * (spec.m + spec.n), batch * spec.m, machine),
    )
    if spec.split is not None:
        schedule = replace(schedule, depth_block=_exact_depth_block(spec))
        return _with_tasks(schedule, spec, machine, candidate)
    if isinstance(spec.m, int) and spec.m <= schedule.rows:
        return _with_tasks(schedule, spec, machine, candidate)
    block = candidate.depth_block or _depth_block(schedule, spec, machine)
    return _with_tasks(replace(schedule, depth_block=block), spec, machine, candidate)


def _read_a(spec: Contraction, height: int) -> ReadA:
    a = spec.planes.a[0]
    if a.packed is not None:
        return ReadA.PACKED
    whole = isinstance(spec.m, int) and spec.m % height == 0
    return ReadA.IN_PLACE if a.rows is not None and whole else ReadA.COPIED


def _exact_depth_block(spec: Contraction) -> int:
    """Tiles along k of planes that are summed at a time."""
    tiles = depth_tiles(spec.depth)
    if not isinstance(tiles, int):
        return _EXACT_DEPTH
    return 0 if tiles <= _EXACT_DEPTH else part_count(tiles, part_count(tiles, _EXACT_DEPTH))


def _depth_block(schedule: Tiled, spec: Contraction, machine: Machine) -> int:
    """Tiles along k of which a block's columns fill half of the first cache: they stay there while
    rows pass by."""
    room = machine.l1_bytes // 2 // (schedule.across * len(spec.planes.b) * TILE_WORDS * 4)
    tiles, room = size_hint(depth_tiles(spec.depth)), max(room, 1)
    if not isinstance(spec.depth, int):
        return room
    return 0 if tiles <= room else part_count(tiles, part_count(tiles, room))


def _with_tasks(
    schedule: Tiled, spec: Contraction, machine: Machine, candidate: ContractionCandidate
) -> Tiled:
    task_ns = _task_ns(schedule, spec, machine)
    rows, columns = choose_tasks(spec, (schedule.rows, schedule.width), task_ns, candidate)
    return replace(schedule, row_tiles=rows, column_tiles=columns)


def _task_ns(schedule: Tiled, spec: Contraction, machine: Machine) -> Callable[[int, int], float]:
    """Nanoseconds of a task by its blocks along m and along n."""
    depth, planes = size_hint(depth_tiles(spec.depth)), spec.planes
    tiles = schedule.down * schedule.across * depth * len(planes.pairs)
    sums = tiles / machine.dot_rate(spec.unit) * schedule.height / TILE_ROWS
    stored = machine.time(4.0 * schedule.rows * schedule.across, {})
    row, column = (
        rows * depth * TILE_WORDS * 4 * count
        for rows, count in (
            (schedule.down, len(planes.a)),
            (schedule.across, len(planes.b)),
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


def _work(spec: Contraction, vectors: Dim, rows: Dim, machine: Machine) -> Dim:
    """Nanoseconds on one core: the products of so many rows, and streaming in so many vectors along
    k once."""
    unit = spec.unit
    rate = machine.dot_rate(unit) * unit.rows * unit.columns * unit.depth / len(spec.planes.pairs)
    sums = floordiv(rows * spec.n * spec.depth, max(1, round(rate)))
    return sums + floordiv(vectors * spec.depth * 4, machine.stream_bytes)
