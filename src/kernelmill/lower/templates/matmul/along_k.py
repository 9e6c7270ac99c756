"""Base of schedules whose vectors run along k: sums that are added up lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims, part_count
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.emit.depth import Depth, for_each_k
from kernelmill.lower.emit.microkernel import Tile
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.spec import Contraction, loader
from kernelmill.lower.templates.matmul.tile_schedule import TileSchedule


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
