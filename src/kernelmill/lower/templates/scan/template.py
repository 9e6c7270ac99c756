"""The scan template: running sums and products along one axis.

Elements are added strictly in order, in the type that eager's CPU kernels accumulate in: f64 for
f32, f32 for the half types, the type itself for the others.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum, product
from kernelmill.core.dtype import F32, F64, DType
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value, VType
from kernelmill.lower.elements.axes import Dims, narrow_lanes
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.context import lane_vectors, task_index
from kernelmill.lower.schedule.template import NodeTemplate, bind_node

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
    lanes = narrow_lanes(lanes, width)
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


_START = {"add": 0.0, "mul": 1.0}


def emit_scan(builder: KernelBuilder, spec: ScanSpec, schedule: ScanSchedule) -> None:
    """Append the body of one task. The kernel must have the schedule's `tasks`."""
    place = list(task_index(builder, schedule.grid))
    place.insert(spec.axis, 0)
    across = schedule.across
    if across is None:
        _emit_rows(builder, spec, [tuple(place)])
        return
    start = place[across] * schedule.block
    stop = minimum(start + schedule.block, spec.shape[across])

    def at(position: Dim) -> Dims:
        return (*place[:across], position, *place[across + 1 :])

    if schedule.lanes > 1:
        whole = isinstance(spec.shape[-1], int) and spec.shape[-1] % schedule.lanes == 0
        with lane_vectors(builder, start, stop, schedule.lanes, whole, "v") as (first, lane):
            _emit_rows(builder, spec, [at(first + (0 if lane is None else lane.index))], lane)
        return
    chains = schedule.chains
    whole = start + (stop - start) // chains * chains
    with builder.loop(start, whole, chains, prefix="r") as loop:
        _emit_rows(builder, spec, [at(loop.index + i) for i in range(chains)])
    if chains > 1:
        with builder.loop(whole, stop, prefix="r") as loop:
            _emit_rows(builder, spec, [at(loop.index)])


def _emit_rows(
    builder: KernelBuilder, spec: ScanSpec, rows: list[Dims], lane: Lane | None = None
) -> None:
    """Scan some rows together. The scanned axis has any position in `rows`."""
    kind = VType(spec.accumulate, 1 if lane is None else lane.count)
    start = _START[spec.op] if spec.accumulate.is_float else int(_START[spec.op])
    carry = [(kind, start)] * len(rows)
    with builder.loop(0, spec.shape[spec.axis], carry=carry, prefix="s") as loop:
        totals: list[Value] = []
        for row, total in zip(rows, loop.carried, strict=True):
            index = (*row[: spec.axis], loop.index, *row[spec.axis + 1 :])
            element = builder.cast(spec.load(builder, index, lane), spec.accumulate)
            total = builder.op(spec.op, total, element)
            spec.store(builder, index, lane, builder.cast(total, spec.dtype.compute))
            totals.append(total)
        loop.carry(*totals)


def _scan_spec(emitter: Emitter, node: Node, target: Location) -> ScanSpec:
    source, axis = node.operands[0], node.attrs["dim"]
    assert isinstance(axis, int)

    return ScanSpec(
        source.shape, axis, OPS[node.op].kernel_op or "", source.dtype,
        lambda _, index, lane: emitter.read(source, index, lane),
        lambda _, index, lane, value: emitter.write(target, index, lane, value),
    )  # fmt: skip


SCAN = NodeTemplate(
    "scan", frozenset({"cumsum", "cumprod"}), bind_node(_scan_spec), plan_scan, emit_scan
)
"""result[..., i, ...] is the sum or product of elements 0..i."""
