"""The code of running sums and products."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dim import Dim, minimum
from kernelmill.core.dtype import DType
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value, VType
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.templates.scan.spec import Dims, ScanSchedule, ScanSpec

_CHAINS = 4
"""Rows that are summed side by side: an addition takes about that many cycles."""
_TASK_ELEMENTS = 8192
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
        _emit_vectors(builder, spec, schedule, at, start, stop)
        return
    chains = schedule.chains
    whole = start + (stop - start) // chains * chains
    with builder.loop(start, whole, chains, prefix="r") as loop:
        _emit_rows(builder, spec, [at(loop.index + i) for i in range(chains)])
    if chains > 1:
        with builder.loop(whole, stop, prefix="r") as loop:
            _emit_rows(builder, spec, [at(loop.index)])


def _emit_vectors(
    builder: KernelBuilder, spec: ScanSpec, schedule: ScanSchedule, at: Callable[[Dim], Dims],
    start: Dim, stop: Dim,
) -> None:  # fmt: skip
    """Emit positions start..stop-1 of the last axis, a vector at a time."""
    lanes, width = schedule.lanes, spec.shape[-1]
    whole = isinstance(width, int) and width % lanes == 0
    with builder.loop(start, stop, lanes, prefix="v") as loop:
        rest = None if whole else builder.index(stop - loop.index)
        mask = None if rest is None else builder.op("lane_mask", rest, lanes=lanes)
        lane = Lane(builder.fresh_symbol("l", 0, lanes - 1), lanes, mask)
        _emit_rows(builder, spec, [at(loop.index + lane.index)], lane)


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
            element = _cast(builder, spec.load(builder, index, lane), spec.accumulate)
            total = builder.op(spec.op, total, element)
            spec.store(builder, index, lane, _cast(builder, total, spec.dtype.compute))
            totals.append(total)
        loop.carry(*totals)


def _cast(builder: KernelBuilder, value: Value, dtype: DType) -> Value:
    return value if value.type.dtype == dtype else builder.op("cast", value, dtype=dtype)
