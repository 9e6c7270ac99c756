"""Sizes of a contraction's tasks, and its cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as pairs
from math import prod

from kernelmill.core.dim import Dim, floordiv, minimum, product
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import part_count, size_hint
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.tile_cost import THREADS, block_sizes, threads_ns
from kernelmill.lower.templates.matmul.spec import Contraction

_SERIAL_NS = 1000
"""Contractions below this are one task: less is not worth meeting for, even in a super kernel."""


TaskTime = Callable[[int, int], float]
"""Nanoseconds of a task by its row tiles and column tiles."""


def choose_tasks(
    spec: Contraction, tile: tuple[int, int], task_ns: TaskTime, candidate: Candidate
) -> tuple[int, int]:
    """Choose a task's tiles along m and n by the least time summed over several numbers of
    threads."""
    row_tiles = part_count(size_hint(spec.m), tile[0])
    column_tiles = part_count(size_hint(spec.n), tile[1])
    if candidate.row_tiles and candidate.column_tiles:
        return min(candidate.row_tiles, row_tiles), min(candidate.column_tiles, column_tiles)
    batch = prod(size_hint(size) for size in spec.batch)
    serial = batch * task_ns(row_tiles, column_tiles) <= _SERIAL_NS
    threads = (1,) if serial else THREADS

    def spent(blocks: tuple[int, int]) -> float:
        tasks = batch * part_count(row_tiles, blocks[0]) * part_count(column_tiles, blocks[1])
        return threads_ns(tasks, task_ns(*blocks), threads)

    return min(pairs(block_sizes(row_tiles), block_sizes(column_tiles)), key=spent)


def estimated_work(spec: Contraction, products: int, bytes: int, machine: Machine) -> Dim:
    """Return nanoseconds on one core, which makes so many products in each: these, and streaming in
    both operands once, numbers of `bytes`."""
    batch, rows = product(spec.batch), spec.m
    matrices = batch if spec.rows is None else minimum(batch, rows)
    rows = batch * rows if spec.rows is None else rows
    sums = floordiv(rows * spec.n * spec.depth, products)
    return sums + floordiv((rows + matrices * spec.n) * spec.depth * bytes, machine.stream_bytes)


def vector_work(spec: Contraction, lanes: int, machine: Machine) -> Dim:
    """Return the `estimated_work` of multiply-adds of vectors."""
    return estimated_work(spec, machine.products(lanes), spec.accumulate.bytes, machine)
