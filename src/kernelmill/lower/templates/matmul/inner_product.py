"""Few rows against a B that is contiguous along k: sums run along k, then across the lanes."""

from __future__ import annotations

from kernelmill.core.dim import Dim, minimum
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import size_hint
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.microkernel import CHAINS
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.schedule.tile_cost import tile_ns
from kernelmill.lower.templates.matmul.along_k import AlongK, column_in_place, dot_products
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tasks import vector_work
from kernelmill.lower.templates.matmul.tile_schedule import TaskPlace

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
