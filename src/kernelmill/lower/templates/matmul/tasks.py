"""Sizes of a contraction's tasks, and its cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as pairs
from math import prod

from kernelmill.core.dim import Dim, floordiv, product
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import part_count, size_hint
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.tile_cost import THREADS, block_sizes
from kernelmill.lower.templates.matmul.spec import Contraction

_SERIAL_NS = 1000
"""Contractions below this are one task: less is not worth meeting for, even in a super kernel."""


def choose_tasks(
    spec: Contraction, tile: tuple[int, int], task_ns: Callable[[int, int], float],
    candidate: Candidate,
) -> tuple[int, int]:  # fmt: skip
    """Choose a task's tiles along m and n by the least time summed over several numbers of threads.
    `task_ns` is that of a task by its tiles."""
    row_tiles = part_count(size_hint(spec.m), tile[0])
    column_tiles = part_count(size_hint(spec.n), tile[1])
    if candidate.row_tiles and candidate.column_tiles:
        return min(candidate.row_tiles, row_tiles), min(candidate.column_tiles, column_tiles)
    batch = prod(size_hint(size) for size in spec.batch)
    serial = batch * task_ns(row_tiles, column_tiles) <= _SERIAL_NS
    threads = (1,) if serial else THREADS

    def spent(blocks: tuple[int, int]) -> float:
        tasks = batch * part_count(row_tiles, blocks[0]) * part_count(column_tiles, blocks[1])
        one = task_ns(*blocks)
        return sum(part_count(tasks, count) * count * one for count in threads)

    return min(pairs(block_sizes(row_tiles), block_sizes(column_tiles)), key=spent)


def estimated_work(spec: Contraction, lanes: int, machine: Machine) -> Dim:
    """Return nanoseconds on one core: multiply-adds, and streaming in both operands once."""
    batch, depth = product(spec.batch), spec.depth
    sums = floordiv(batch * spec.m * spec.n * depth, machine.products(lanes))
    bytes = batch * depth * (spec.m + spec.n) * spec.accumulate.bytes
    return sums + floordiv(bytes, machine.stream_bytes)
