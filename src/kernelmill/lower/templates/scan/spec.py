"""Running sums and products along one axis.

Elements are added strictly in order, in the type that eager's CPU kernels accumulate in: f64 for
f32, f32 for the half types, the type itself for the others.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.dtype import F32, F64, DType
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane

Dims = tuple[Dim, ...]

LoadElement = Callable[[KernelBuilder, Dims, Lane | None], Value]
"""`load(builder, index, lane)`: one element, or the vector along the lane's symbol in the last
position of the index. In the compute type (f32 for half types)."""

StoreElement = Callable[[KernelBuilder, Dims, Lane | None, Value], None]
"""`store(builder, index, lane, value)`: the value is in the compute type."""


@dataclass(frozen=True)
class ScanSpec:
    """result[..., i, ...] joins elements 0..i along `axis` by `op`, the kernel's add or mul.

    `dtype` is that of the elements, a float or an integer. Any size may be symbolic or zero.
    """

    shape: Dims
    axis: int
    op: str
    dtype: DType
    load: LoadElement
    store: StoreElement

    @property
    def accumulate(self) -> DType:
        """Dtype of the running value."""
        return F64 if self.dtype == F32 else self.dtype.compute


_CHAINS = 4
"""Rows that are summed side by side: an addition takes about that many cycles."""
_TASK_ELEMENTS = 8192


@dataclass(frozen=True)
class ScanSchedule:
    """The schedule of a scan.

    `across` is the axis, other than the scanned one, that tasks take `block` positions of, `lanes`
    or (when `lanes` is 1) `chains` at a time; None when there is no other axis. Work is in
    nanoseconds of one core.
    """

    across: int | None
    lanes: int
    chains: int
    block: int
    grid: Dims
    work: Dim

    @property
    def tasks(self) -> Dim:
        """The number of tasks."""
        return product(self.grid)


def plan_scan(spec: ScanSpec, machine: Machine) -> ScanSchedule:
    """Plan vectors along the last axis, or rows side by side when that is the scanned one."""
    rank = len(spec.shape)
    work = product(spec.shape)
    if rank == 1:
        return ScanSchedule(None, 1, 1, 1, (), work)
    vector = spec.axis != rank - 1
    across = rank - 1 if vector else rank - 2
    width, length = spec.shape[across], spec.shape[spec.axis]
    lanes = machine.isa.vector_bits // min(32, spec.dtype.compute.bits) if vector else 1
    if isinstance(width, int):
        while lanes > 1 and lanes >= 2 * width:
            lanes //= 2
    chains = 1 if vector or (isinstance(width, int) and width < _CHAINS) else _CHAINS
    step = lanes * chains
    along = length if isinstance(length, int) else _TASK_ELEMENTS // step
    block = max(1, _TASK_ELEMENTS // (max(along, 1) * step)) * step
    grid = tuple(
        ceildiv(size, block) if axis == across else size
        for axis, size in enumerate(spec.shape)
        if axis != spec.axis
    )
    return ScanSchedule(across, lanes, chains, block, grid, ceildiv(work * 2, step) + 1)
