"""Schedules of scatters: their cut into tasks."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.machine import Machine
from kernelmill.lower.templates.scatter.spec import Dims, ScatterSpec

_ENOUGH_TASKS = 8
_LEAST_VECTORS = 4


@dataclass(frozen=True)
class ScatterSchedule:
    """The schedule of a scatter: tasks are the window without its last axis, times blocks of that.

    `inside` tells that the loop over a block stands inside those over the index space; with more
    than one lane it always does. Work is in nanoseconds of one core.
    """

    lanes: int
    block: Dim
    inside: bool
    grid: Dims
    work: Dim

    @property
    def tasks(self) -> Dim:
        """The number of tasks."""
        return product(self.grid)


def plan_scatter(spec: ScatterSpec, machine: Machine) -> ScatterSchedule:
    """Plan vectors along the window's last axis where memory and indices allow it."""
    updates = product(spec.space) * product(spec.window)
    if not spec.window:
        return ScatterSchedule(1, 1, True, (), updates * 2 + 1)
    last = len(spec.target.shape) - 1
    inside = last not in spec.axes
    vector = inside and spec.shared and spec.target.strides[last] == 1
    lanes = machine.isa.vector_bits // min(32, spec.target.dtype.compute.bits) if vector else 1
    width = spec.window[-1]
    if isinstance(width, int):
        while lanes > 1 and lanes >= 2 * width:
            lanes //= 2
    block = _block(spec.window, lanes)
    grid = (*spec.window[:-1], ceildiv(width, block) if width != 0 else 0)
    return ScatterSchedule(lanes, block, inside, grid, ceildiv(updates * 2, lanes) + 1)


def _block(window: Dims, lanes: int) -> Dim:
    """Return the positions of the last axis for one task: all, unless that leaves too few tasks."""
    outer, width = product(window[:-1]), window[-1]
    if not isinstance(outer, int) or not isinstance(width, int) or outer >= _ENOUGH_TASKS:
        return width
    least = lanes * _LEAST_VECTORS
    wanted = -(-width * max(outer, 1) // _ENOUGH_TASKS)
    return min(max(width, 1), -(-max(wanted, least) // lanes) * lanes)
