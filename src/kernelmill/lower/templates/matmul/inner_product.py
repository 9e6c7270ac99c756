"""Few rows against a B that is contiguous along k: sums run along k, then across the lanes."""

from __future__ import annotations

from kernelmill.core.dim import Dim, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.depth import Depth, for_each_k
from kernelmill.lower.emit.microkernel import CHAINS, Tile
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.operands import loader


def sum_along_depth(context: ContractionContext, depth: Depth, column: Dim) -> None:
    """One tile of sums, all of C's rows by one vector of columns, into scratch."""
    schedule, spec = context.schedule, context.spec
    together = max(1, CHAINS // schedule.rows)
    left = minimum(schedule.lanes, spec.n - column * schedule.lanes)
    with context.builder.loop(0, left, together, prefix="n") as group:
        first = column * schedule.lanes + group.index
        columns = [minimum(first + c, spec.n - 1) for c in range(together)]
        sums = _dot_products(context, depth, columns)
        for number, value in enumerate(sums):
            row, c = divmod(number, together)
            context.write(context.scratch.sums + row * schedule.width + group.index + c, value)


def _dot_products(context: ContractionContext, depth: Depth, columns: list[Dim]) -> list[Value]:
    """Sums of every row with each of these columns."""
    builder, schedule, spec = context.builder, context.schedule, context.spec
    tile = Tile(
        schedule.rows, len(columns), schedule.lanes, context.dtype, schedule.fused, spec.unit
    )
    load_a, load_b = loader(spec.a), loader(spec.b)
    size = depth.axes[-1]

    def step(k: Dims, sums: list[Value]) -> list[Value]:
        lane = context.masked(size - k[-1], size)
        along = (*k[:-1], k[-1] + context.lane.index)
        rows = [load_a(builder, context.batch, m, along, lane) for m in range(schedule.rows)]
        others = [load_b(builder, context.batch, n, along, lane) for n in columns]
        products = [(row, other) for row in rows for other in others]
        return [
            tile.multiply_add(builder, row, other, sum)
            for (row, other), sum in zip(products, sums, strict=True)
        ]

    initial = [context.zeros()] * (schedule.rows * len(columns))
    sums = for_each_k(builder, depth, initial, step, schedule.lanes)
    return [builder.op("reduce_add", value) for value in sums]
