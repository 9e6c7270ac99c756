"""Schedules whose vectors run along k: sums are added in each lane, then across the lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmill.core.dim import Dim, minimum
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, part_count, size_hint
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.emit.depth import Depth, for_each_k
from kernelmill.lower.emit.microkernel import CHAINS, Tile
from kernelmill.lower.schedule.candidate import OPEN, Candidate, tile_ns
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.spec import Contraction, loader
from kernelmill.lower.templates.matmul.tile_schedule import TaskPlace, TileSchedule, vector_work


class AlongK(TileSchedule):
    """No operand is copied; a tile of C is one vector wide where it is stored. Its lanes run along
    k in the sums and along n in results."""

    def scratch_bytes(self, spec: Contraction) -> Dim:
        """Return the bytes of a thread's scratch: one tile of sums."""
        return part_count(self.rows * self.lanes * spec.accumulate.bytes, LINE_BYTES) * LINE_BYTES


LoadColumn = Callable[[int, Dims, Lane], Value]
"""A vector of one of a tile's columns of B, from k on."""


def dot_products(
    context: ContractionContext[Any], rows: Sequence[Dim], columns: int, load_column: LoadColumn
) -> list[Value]:
    """Return sums of the products of each of these rows of A with each column, row by row."""
    builder, schedule, spec = context.builder, context.schedule, context.spec
    depth = Depth.whole(spec.k)
    tile = Tile(len(rows), columns, schedule.lanes, context.dtype, schedule.use_fma, spec.unit)
    load_a, size = loader(spec.a), depth.axes[-1]

    def step(k: Dims, sums: list[Value]) -> list[Value]:
        lane = context.masked(size - k[-1], size)
        along = context.along(k)
        loaded = [load_column(n, k, lane) for n in range(columns)]
        added: list[Value] = []
        for row in rows:
            a = load_a(builder, context.batch, row, along, lane)
            a = context.zero_beyond(spec.a, a, lane)
            added += [
                tile.multiply_add(builder, a, column, known)
                for column, known in zip(loaded, sums[len(added) :], strict=False)
            ]
        return added

    initial = [context.zeros()] * (len(rows) * columns)
    sums = for_each_k(builder, depth, initial, step, schedule.lanes)
    return [builder.op("reduce_add", value) for value in sums]


def column_in_place(context: ContractionContext[Any], n: Dim, k: Dims, lane: Lane) -> Value:
    """Load a vector of column n of B, from k on, in place."""
    spec = context.spec
    value = loader(spec.b)(context.builder, context.batch, n, context.along(k), lane)
    return context.zero_beyond(spec.b, value, lane)


MOST_ROWS = 4
"""Most rows for which summing along k is cheaper than turning B round."""

_LEAST_DEPTH = 16


class InnerProduct(AlongK):
    """All rows of C by one vector of columns at a time."""

    known_rows = True

    @classmethod
    def plan(
        cls, spec: Contraction, machine: Machine, candidate: Candidate = OPEN
    ) -> InnerProduct | None:
        """Plan the schedule for few rows with both operands in place, B along k; else None."""
        rows = spec.m
        special = spec.rows is not None or spec.group == 4 or spec.unit.on_blocks
        if special or not isinstance(rows, int) or not 0 < rows <= MOST_ROWS:
            return None
        loose = spec.a.packed is None and spec.b.packed is None and not spec.b.panelled
        long = size_hint(spec.k[-1]) >= _LEAST_DEPTH
        if not loose or spec.b.contiguous_along != Along.K or not long:
            return None
        lanes, depth = machine.isa.lanes(spec.accumulate), size_hint(spec.depth)
        tile = tile_ns(rows, 1, machine)

        def task_ns(row_tiles: int, column_tiles: int) -> float:
            bytes = column_tiles * lanes * depth * spec.accumulate.bytes
            sums = row_tiles * column_tiles * depth * tile + machine.task_ns
            return sums + machine.streaming(bytes)

        schedule = cls(
            lanes=lanes, rows=rows, vectors=1, work=vector_work(spec, lanes, machine),
            use_fma=machine.isa.has_fma and spec.accumulate.is_float,
        )  # fmt: skip
        return schedule.cut(spec, task_ns, candidate)

    def emit(self, place: TaskPlace) -> None:
        """Emit all of a task's tiles."""
        context = ContractionContext.at(place, self)
        with context.column_tiles() as column:
            _sum_tile(context, column)
            context.store_tile(0, column, 0)


def _sum_tile(context: ContractionContext[InnerProduct], column: Dim) -> None:
    schedule, spec = context.schedule, context.spec
    together = max(1, CHAINS // schedule.rows)
    left = minimum(schedule.lanes, spec.n - column * schedule.lanes)
    with context.builder.loop(0, left, together, prefix="n") as group:
        first = column * schedule.lanes + group.index
        columns = [minimum(first + c, spec.n - 1) for c in range(together)]
        sums = dot_products(
            context, range(schedule.rows), together,
            lambda n, k, lane: column_in_place(context, columns[n], k, lane),
        )  # fmt: skip
        for number, value in enumerate(sums):
            row, c = divmod(number, together)
            context.write(row * schedule.width + group.index + c, value)
