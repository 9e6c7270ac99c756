"""The code of writes to computed places."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kernelmill.core.dim import Dim, minimum
from kernelmill.core.dtype import BOOL
from kernelmill.graph.definition import Combine
from kernelmill.graph.ops import COMBINED_BY
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements import pointwise
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.templates.scatter.spec import Dims, ScatterSchedule, ScatterSpec


def emit_scatter(builder: KernelBuilder, spec: ScatterSpec, schedule: ScatterSchedule) -> None:
    """Append the body of one task. The kernel must have the schedule's `tasks`."""
    writer = _Writer(builder, spec)
    if not spec.window:
        with writer.walk(spec.space) as i:
            writer.write(i, (), None)
        return
    *outer, block = task_index(builder, schedule.grid)
    start = block * schedule.block
    stop = minimum(start + schedule.block, spec.window[-1])
    if not schedule.inside:
        with builder.loop(start, stop, prefix="w") as loop, writer.walk(spec.space) as i:
            writer.write(i, (*outer, loop.index), None)
        return
    with writer.walk(spec.space) as i:
        if spec.shared:
            with writer.places(i, ()) as places:
                writer.write_block(i, tuple(outer), start, stop, schedule.lanes, places)
        else:
            with builder.loop(start, stop, prefix="w") as loop:
                writer.write(i, (*outer, loop.index), None)


class _Writer:
    def __init__(self, builder: KernelBuilder, spec: ScatterSpec) -> None:
        self.b, self.spec = builder, spec

    @contextmanager
    def walk(self, sizes: Dims) -> Generator[Dims]:
        """Loop over an index space, the last axis innermost."""
        if not sizes:
            yield ()
            return
        with self.b.loop(0, sizes[0], prefix="i") as loop, self.walk(sizes[1:]) as rest:
            yield (loop.index, *rest)

    @contextmanager
    def places(self, i: Dims, w: Dims) -> Generator[Dims]:
        """Yield the positions that the indices address; code inside runs only where all exist."""
        b, spec = self.b, self.spec
        wrapped: list[tuple[Value, Dim]] = []
        valid: Value | None = None
        for axis, index in zip(spec.axes, spec.indices(b, i, w), strict=True):
            size = spec.target.shape[axis]
            extent = b.index(size)
            index = b.op("select", b.op("lt", index, 0), b.op("add", index, extent), index)
            exists = b.op("and", b.op("ge", index, 0), b.op("lt", index, extent))
            valid = exists if valid is None else b.op("and", valid, exists)
            wrapped.append((index, size))
        assert valid is not None
        with b.when(b.op("check", valid, code=spec.check)):
            yield tuple(b.let(index, 0, size - 1) for index, size in wrapped)

    def write(self, i: Dims, w: Dims, lane: Lane | None) -> None:
        with self.places(i, () if self.spec.shared else w) as places:
            self._update(i, w, lane, places)

    def write_block(
        self, i: Dims, outer: Dims, start: Dim, stop: Dim, lanes: int, places: Dims
    ) -> None:
        """Write positions start..stop-1 of the window's last axis, for one index."""
        b, width = self.b, self.spec.window[-1]
        with b.loop(start, stop, lanes, prefix="w") as loop:
            if lanes == 1:
                self._update(i, (*outer, loop.index), None, places)
                return
            mask = None
            if not (isinstance(width, int) and width % lanes == 0):
                mask = b.op("lane_mask", b.index(stop - loop.index), lanes=lanes)
            lane = Lane(b.fresh_symbol("l", 0, lanes - 1), lanes, mask)
            self._update(i, (*outer, loop.index + lane.index), lane, places)

    def _update(self, i: Dims, w: Dims, lane: Lane | None, places: Dims) -> None:
        b, target = self.b, self.spec.target
        address = self._address(w if lane is None else (*w[:-1], w[-1] - lane.index), places)
        value = self.spec.update(b, i, w, lane)
        lanes, mask = (1, None) if lane is None else (lane.count, lane.mask)
        if self.spec.mode is not Combine.SET:
            stored = b.load(target.buffer, address, target.dtype, lanes, mask)
            old = pointwise.from_memory(b, stored, target.dtype)
            by = COMBINED_BY[self.spec.mode]
            op = by.kernel_op_bool if target.dtype == BOOL else by.kernel_op
            assert op is not None
            # Of two zeros `max` and `min` give the second: that which is there, as ATen does.
            extreme = self.spec.mode in (Combine.MAX, Combine.MIN)
            value = b.op(op, value, old) if extreme else b.op(op, old, value)
        elif value.type.lanes < lanes:
            value = b.op("splat", value, dtype=value.type.dtype, lanes=lanes)
        b.store(target.buffer, address, pointwise.to_memory(b, value, target.dtype), mask)

    def _address(self, w: Dims, places: Dims) -> Dim:
        target = self.spec.target
        addressed, window = iter(places), iter(w)
        address = target.offset
        for axis, stride in enumerate(target.strides):
            position = next(addressed) if axis in self.spec.axes else next(window)
            address = address + position * stride
        return address
