"""Waits of sub-kernels: the dependences that cross threads, each covered once.

A thread walks the sub-kernels in the plan's order, does its share of those whose part of the team
it belongs to, and then says how far it is. Waiting for sub-kernel p is waiting until every thread
of p's part is behind p. All waits are for earlier sub-kernels, so the walk cannot come to a
standstill, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.plan.ir import WHOLE_TEAM, Part
from kernelmill.superkernel.footprint import Footprint


@dataclass(frozen=True)
class SubKernel:
    """A launch of a super kernel: number of tasks, part of the team, tasks' footprints."""

    tasks: int
    part: Part
    touches: tuple[Footprint, ...]


def conflicting(first: SubKernel, second: SubKernel) -> bool:
    """Return whether the two access the same bytes and one writes: their order matters."""
    return any(_conflict(a, first.tasks, b, second.tasks) for a, b in _pairs(first, second))


def crossing(first: SubKernel, second: SubKernel) -> bool:
    """Return whether a thread may need, or overwrite, results of another thread in `first`.

    Not so when both are split alike and each task meets the same task only, and when one and the
    same thread runs both.
    """
    if first.part == second.part and first.part[0] == first.part[1]:
        return False
    alike = first.part == second.part and first.tasks == second.tasks
    return any(
        _conflict(a, first.tasks, b, second.tasks) and not (alike and _own_rows(a, b))
        for a, b in _pairs(first, second)
    )


def waits_of(kernels: Sequence[SubKernel]) -> tuple[tuple[int, ...], ...]:
    """Map each sub-kernel to the earlier ones it waits for, without those that are known to be
    done: the same threads have waited for them before, or wait for one that did."""
    waits: list[tuple[int, ...]] = []
    behind: list[frozenset[int]] = []  # what is done for sure when a thread begins number i
    for number, kernel in enumerate(kernels):
        known = _inherited(kernels, behind, number)
        chosen: list[int] = []
        for earlier in range(number - 1, -1, -1):
            if earlier not in known and crossing(kernels[earlier], kernel):
                chosen.append(earlier)
                known |= {earlier} | behind[earlier] | _passed(kernels, earlier)
        waits.append(tuple(sorted(chosen)))
        behind.append(known)
    return tuple(waits)


def _inherited(
    kernels: Sequence[SubKernel], behind: Sequence[frozenset[int]], number: int
) -> frozenset[int]:
    """Return the sub-kernels that all threads of a sub-kernel have waited for before."""
    part = kernels[number].part
    known: frozenset[int] = frozenset()
    for earlier in range(number):
        if _within(part, kernels[earlier].part):
            known |= behind[earlier]
    return known


def _passed(kernels: Sequence[SubKernel], number: int) -> frozenset[int]:
    """Return the sub-kernels done once a sub-kernel is: those whose threads are among its own."""
    part = kernels[number].part
    return frozenset(earlier for earlier in range(number) if _within(kernels[earlier].part, part))


def _within(inner: Part, outer: Part) -> bool:
    """Return whether the threads of one part are among the other's, whatever the size of the team.

    Of parts that begin apart this cannot be said: in a small team each has one thread at least.
    """
    return outer == WHOLE_TEAM or (inner[0] == outer[0] and inner[1] <= outer[1])


def _pairs(first: SubKernel, second: SubKernel) -> list[tuple[Footprint, Footprint]]:
    return [
        (a, b)
        for a in first.touches
        for b in second.touches
        if a.memory == b.memory and (a.writes or b.writes)
    ]


def _conflict(a: Footprint, tasks_a: int, b: Footprint, tasks_b: int) -> bool:
    if tasks_a < 1 or tasks_b < 1:
        return False
    (low_a, high_a), (low_b, high_b) = a.of_tasks(0, tasks_a), b.of_tasks(0, tasks_b)
    return low_a < high_b and low_b < high_a


def _own_rows(a: Footprint, b: Footprint) -> bool:
    """Return whether task i of one and task j of the other never meet unless i = j."""
    return a.stride == b.stride > 0 and max(a.high, b.high) - min(a.low, b.low) <= a.stride
