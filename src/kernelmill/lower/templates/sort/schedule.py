"""Schedules of sorts: their cut into tasks."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import size_hint
from kernelmill.lower.templates.sort.introsort import STACK_WORDS
from kernelmill.lower.templates.sort.spec import SortSpec

_TASK_ELEMENTS = 2048
PARTIAL = 64
"""Of so many times k elements and more, topk keeps the k in a heap."""


@dataclass(frozen=True)
class SortSchedule:
    """Tasks take `rows` rows each; `lanes` elements become keys at a time. `scratch` is in bytes,
    work in nanoseconds of one core."""

    rows: int
    lanes: int
    tasks: Dim
    scratch: Dim
    work: Dim


def plan_sort(spec: SortSpec, machine: Machine) -> SortSchedule:
    """Plan tasks of independent rows; short ones share a task."""
    total = product(size for axis, size in enumerate(spec.shape) if axis != spec.axis)
    rows = max(1, _TASK_ELEMENTS // size_hint(spec.size))
    lanes = machine.isa.vector_bits // spec.key.bits
    while lanes > 1 and isinstance(spec.size, int) and lanes >= 2 * spec.size:
        lanes //= 2
    held = spec.length if streams(spec) is True else spec.size
    words = STACK_WORDS + ceildiv(held * spec.key.bytes, 8) + held
    rounds = 2 if spec.top is not None else size_hint(spec.size).bit_length() + 1
    work = total * spec.size * 2 * rounds + 1
    return SortSchedule(rows, lanes, ceildiv(total, rows), words * 8, work)


def streams(spec: SortSpec) -> bool | None:
    """Return whether the best are kept in a heap as the row is read; None for unknown sizes."""
    if spec.top is None:
        return False
    left = spec.size - spec.top.count * PARTIAL
    return left >= 0 if isinstance(left, int) else None
