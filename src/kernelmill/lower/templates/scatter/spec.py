"""Writes to computed places of a buffer that already holds values: scatter, index_put, index_add.

    for i in the index space, row-major:
        for w in the window:
            target[indices(i, w) at `axes`, w at the other axes]  op=  update(i, w)

Positions of the window are independent of one another, so tasks and vectors share them out. The
index space is walked in order within a task: an element that is addressed more than once gets its
updates in the order of a sequential loop, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.dtype import DType
from kernelmill.core.target.machine import Machine
from kernelmill.graph.definition import Combine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane

Dims = tuple[Dim, ...]

LoadIndices = Callable[[KernelBuilder, Dims, Dims], Sequence[Value]]
"""`indices(builder, i, w)`: a scalar i64 for each of the spec's axes, negative ones counting from
the end. `w` is () when the indices are the same for the whole window."""

LoadUpdate = Callable[[KernelBuilder, Dims, Dims, Lane | None], Value]
"""`update(builder, i, w, lane)`: one element of what is written, or the vector along the lane's
symbol in the last position of `w`. In the compute type; a scalar may stand for equal lanes."""


@dataclass(frozen=True)
class ScatterTarget:
    """The buffer that is written to: a declared "inout" parameter. Strides in elements."""

    buffer: str
    dtype: DType
    shape: Dims
    strides: Dims
    offset: Dim = 0


@dataclass(frozen=True)
class ScatterSpec:
    """The whole of it. The kernel must declare the status buffer.

    axes     of the target that indices address, ascending.
    space    shape of the index space.
    window   sizes of the target's other axes, in order; each at most the target's.
    shared   whether the indices are the same for the whole window.
    mode     how an element and its update are combined.
    check    the status code that reports an index out of range; such updates are left out.
    """

    target: ScatterTarget
    axes: tuple[int, ...]
    space: Dims
    window: Dims
    indices: LoadIndices
    update: LoadUpdate
    mode: Combine
    shared: bool
    check: int = 1


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
