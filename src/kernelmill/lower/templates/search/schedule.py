"""Schedules of searches: their cut into tasks."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import size_hint
from kernelmill.lower.templates.search.spec import SearchSpec

_TASK_STEPS = 8192
_TOGETHER = 4
"""Values that are searched side by side: each step waits for a load."""

_STEP_OPERATIONS = 6.0


@dataclass(frozen=True)
class SearchSchedule:
    """Tasks take `block` values each, `together` at a time. Work is in nanoseconds of one core."""

    block: int
    together: int
    tasks: Dim
    work: Dim


def steps(size: Dim) -> int:
    """Return the number of halvings until nothing of a row is left."""
    return size_hint(size).bit_length()


def plan_search(spec: SearchSpec, machine: Machine) -> SearchSchedule:
    """Plan tasks of about as many steps."""
    total, count = product(spec.shape), max(1, steps(spec.size))
    block = max(1, _TASK_STEPS // count // _TOGETHER) * _TOGETHER
    together = min(_TOGETHER, total) if isinstance(total, int) and total > 0 else _TOGETHER
    each = max(1, round(machine.time(_STEP_OPERATIONS * count, {})))
    return SearchSchedule(block, together, ceildiv(total, block), total * each)
