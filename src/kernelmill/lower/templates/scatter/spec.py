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
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
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
