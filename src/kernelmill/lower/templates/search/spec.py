"""Positions of values among ascending numbers: searchsorted and bucketize.

    start, end = 0, size
    while start < end:
        middle = start + (end - start) // 2
        if row[middle] >= value: end = middle        # with `right`: >
        else:                    start = middle + 1

is ATen's way (BucketizationUtils.h), whose results it has for rows that are not ascending too, and
for NaN, which is neither.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims, size_hint

LoadValue = Callable[[KernelBuilder, Dims], Value]
"""`load(builder, index)`: one value, in the compute type (f32 for half types)."""

LoadNumber = Callable[[KernelBuilder, Dims, Dim], Value]
"""`number(builder, index, position)`: the number at a position of the row for the value there."""

StorePosition = Callable[[KernelBuilder, Dims, Value], None]
"""`store(builder, index, position)`: one element of the result, given as an i64."""


@dataclass(frozen=True)
class SearchSpec:
    """result[index] is the position of value[index] among `size` numbers, in `shape`. Any size may
    be symbolic or zero. With `right` positions are behind equal numbers, else before them."""

    shape: Dims
    size: Dim
    right: bool
    value: LoadValue
    number: LoadNumber
    store: StorePosition


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
