"""Costs of register tiles that cost models share."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.target.dot_units import MULTIPLY_ADD
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import part_count


def tile_ns(rows: int, vectors: int, machine: Machine) -> float:
    """Return the nanoseconds of a tile for each k: multiply-adds or loads, the longer of both."""
    sums = rows * vectors / machine.dot_rate(MULTIPLY_ADD)
    return max(sums, machine.time(rows + vectors, {}))


def block_sizes(count: int) -> list[int]:
    """Return the sizes when `count` tiles are cut into 1, 2, ... blocks of nearly one size."""
    return sorted({part_count(count, cuts) for cuts in range(1, min(count, 64) + 1)}, reverse=True)


THREADS = (1, 2, 4, 8, 16)
"""Teams of these sizes, for that of a call is not known beforehand."""


def threads_ns(tasks: int, one: float, threads: Sequence[int] = THREADS) -> float:
    """Return the nanoseconds of threads for so many tasks of `one` each, summed over numbers of
    threads."""
    return sum(part_count(tasks, count) * count * one for count in threads)
