"""Loss of a blocked schedule for a symbolic number of rows at a known one."""

from __future__ import annotations

import math
from math import prod
from statistics import fmean

from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.schedule.tile_cost import threads_ns, tile_ns
from kernelmill.lower.templates.matmul.blocked_tiles import BlockedTiles, ReadA, ReadB
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tasks import TaskTime


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


def _row_tiles(schedule: BlockedTiles, spec: Contraction) -> int:
    assert isinstance(spec.m, int)
    return min(schedule.row_tiles, part_count(spec.m, schedule.rows))


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
    each = _row_tiles(schedule, spec)
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
