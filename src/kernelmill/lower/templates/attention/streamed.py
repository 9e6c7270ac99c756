"""Few query rows, as in decoding: keys and values are read once, in place."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod, product, provably_less
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Operand, Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.templates.attention.blocks import AttentionBlocks, Regions
from kernelmill.lower.templates.attention.context import AttentionContext, Row, RowTile
from kernelmill.lower.templates.attention.key_blocks import each_block
from kernelmill.lower.templates.attention.softmax import (
    add_weighted_values,
    exponentiate,
    multiply_tile,
)
from kernelmill.lower.templates.attention.spec import (
    FEW_ROWS,
    AttentionSpec,
    block_keys,
    covers,
    neighbouring_keys,
    register_tile,
    round_up,
    split,
    within_blocks,
)

_BLOCK_KEYS = 256
_ENOUGH_STREAMS = 4
"""Tasks that are enough where keys and values stream: to read them once for several heads is worth
more than tasks for more threads."""


@dataclass(frozen=True, kw_only=True)
class Streamed(AttentionBlocks):
    """Few rows: keys and values are read in place, for so many query heads of a task."""

    heads: int

    @classmethod
    def plan(cls, spec: AttentionSpec, machine: Machine, rows_at_a_time: int) -> Streamed | None:
        """Plan the schedule for few rows; None for many."""
        if not rows_at_a_time:
            return None
        lanes, tile, rows = (
            machine.isa.lanes(spec.accumulate),
            register_tile(machine),
            rows_at_a_time,
        )
        rows = within_blocks(spec, rows)
        row_blocks = ceildiv(spec.rows, rows)
        heads = _heads_together(spec, rows)
        keys = block_keys(neighbouring_keys(spec), lanes, _BLOCK_KEYS)
        # Sums stay in registers while the values stream past.
        width = max(1, min(2 * tile[1], tile[0] * tile[1] // (heads * rows)))
        return cls(
            lanes=lanes, use_fma=machine.isa.has_fma, heads=heads, rows=rows,
            row_blocks=row_blocks, tile_rows=heads * rows,
            value_panels=split(spec.value_depth, lanes, width), keys=keys,
            single_block=covers(keys, spec),
            tasks=product(spec.batch) // heads * row_blocks, by_lane=machine.isa.has_lane_operand,
        )  # fmt: skip

    @property
    def heads_together(self) -> int:
        return self.heads

    def regions(self, spec: AttentionSpec) -> Regions:
        """Return a region for queries alone."""
        assert isinstance(spec.depth, int)
        rows = self.heads * self.rows
        return Regions(rows, self.lanes, rows * round_up(spec.depth, self.lanes))

    def with_sizes(self, spec: AttentionSpec, rows: int, keys: int) -> Streamed:
        """Return the schedule with these keys; the rows stay as they are."""
        return replace(self, keys=keys, single_block=covers(keys, spec))

    @property
    def row_choices(self) -> AbstractSet[int]:
        """Return the schedule's rows as the only choice."""
        return {self.rows}

    @property
    def key_step(self) -> int:
        """Whole vectors."""
        return self.lanes

    def estimated_work(self, spec: AttentionSpec, machine: Machine) -> Dim:
        """Return nanoseconds, with keys and values streamed from an outer cache or memory."""
        pairs, depths = product(spec.batch) * spec.keys, spec.depth + spec.value_depth
        bytes = pairs * depths * spec.accumulate.bytes
        streamed = ceildiv(bytes, machine.stream_bytes * spec.group)
        return super().estimated_work(spec, machine) + streamed

    def emit(self, builder: KernelBuilder, spec: AttentionSpec, batch: Dims, first: Dim) -> None:
        """Emit the query rows of one task."""
        _emit(AttentionContext.of(builder, spec, self), batch, first)


def _heads_together(spec: AttentionSpec, rows: int) -> int:
    """Return the largest part of a group that keeps rows few and leaves enough tasks."""
    if spec.blocks is not None and spec.blocks.by_head:
        return 1
    tasks = product(spec.batch)
    for heads in range(min(spec.group, FEW_ROWS // rows), 1, -1):
        starved = isinstance(tasks, int) and tasks // heads < min(_ENOUGH_STREAMS, tasks)
        if spec.group % heads == 0 and not starved:
            return heads
    return 1


def _emit(context: AttentionContext, batch: Dims, first: Dim) -> None:
    schedule = context.schedule
    tile = RowTile(0, schedule.tile_rows, partial(_row, context, batch, first))
    rows = [tile.row(i) for i in range(tile.count)]
    for row in rows:
        context.start_row(row)
    each_block(context, batch, first, first + schedule.rows, partial(_emit_block, tile=tile))
    for i, row in enumerate(rows):
        _finish(context, row, first + i % schedule.rows)


def _finish(context: AttentionContext, row: Row, m: Dim) -> None:
    """Store a row, unless it stands for one past the end."""
    if provably_less(m, context.spec.rows):
        context.finish_row(row)
        return
    b = context.builder
    with b.when(b.op("lt", b.index(m), b.index(context.spec.rows))):
        context.finish_row(row)


def _row(context: AttentionContext, batch: Dims, first: Dim, i: Dim) -> Row:
    """Return row i of the task: heads one after another; one past the end is the last one again."""
    b, total = context.builder, context.spec.rows
    head, m = floordiv(i, context.schedule.rows), first + mod(i, context.schedule.rows)
    if not isinstance(total, int):
        m = b.let(b.index(minimum(m, total - 1)), 0, total - 1)
    return Row((*batch[:-1], batch[-1] + head), m, i)


def _emit_block(
    context: AttentionContext, batch: Dims, start: Dim, end: Dim, tile: RowTile
) -> None:
    spec, lanes = context.spec, context.schedule.lanes
    if spec.key_contiguous_along is Along.K:
        _scores_along_depth(context, batch, tile, start, end)
    else:
        _scores_along_keys(context, batch, tile, start, end)
    exponentiate(context, tile, start, end - start, ceildiv(end - start, lanes))

    def values(k: Dim, *, first: int, width: int) -> list[Value]:
        return [_value(context, batch, start + k, (first + j) * lanes) for j in range(width)]

    add_weighted_values(context, tile, end - start, values)


def _value(context: AttentionContext, batch: Dims, n: Dim, e: int) -> Value:
    """Load a vector of one value, with zeros past its end."""
    spec, lanes = context.spec, context.schedule.lanes
    assert isinstance(spec.value_depth, int)
    whole = e + lanes <= spec.value_depth
    lane = context.lane(lanes, None if whole else context.lanes_below(spec.value_depth - e))
    return context.broadcast(spec.value(context.builder, batch, n, lane.index + e, lane), lanes)


def _scores_along_depth(
    context: AttentionContext, batch: Dims, tile: RowTile, start: Dim, end: Dim
) -> None:
    """Compute each score by itself: vectors along the depth, summed across lanes at the end."""
    spec, scratch = context.spec, context.scratch
    vectors = context.row_vectors(spec.depth)
    queries = [
        [context.read(scratch.queries + i * scratch.query_row + d, n) for d, n in vectors]
        for i in range(tile.count)
    ]
    with context.builder.loop(start, end, prefix="n") as loop:
        key = [context.load_vector(spec.key, batch, loop.index, d, n) for d, n in vectors]
        for i, query in enumerate(queries):
            context.write(context.score_offset(i, loop.index - start), _dot(context, query, key))


def _dot(context: AttentionContext, left: Sequence[Value], right: Sequence[Value]) -> Value:
    """Return the sum of products of two rows, by a running sum for each width of vectors."""
    b = context.builder
    running: dict[int, Value] = {}
    for x, y in zip(left, right, strict=True):
        lanes = x.type.lanes
        total = running.get(lanes)
        running[lanes] = b.op("mul", x, y) if total is None else context.multiply_add(x, y, total)
    parts = [b.op("reduce_add", v) if lanes > 1 else v for lanes, v in running.items()]
    result = parts[0]
    for part in parts[1:]:
        result = b.op("add", result, part)
    return result


def _scores_along_keys(
    context: AttentionContext, batch: Dims, tile: RowTile, start: Dim, end: Dim
) -> None:
    """Compute a vector of scores at a time: keys are contiguous in memory."""
    b, spec, lanes = context.builder, context.spec, context.schedule.lanes
    queries = partial(context.query_elements, tile)
    with b.loop(start, end, lanes, prefix="n") as loop:
        mask = None if context.whole_blocks else context.lanes_below(end - loop.index)

        def keys(d: Dim) -> list[Value]:
            lane = context.lane(lanes, mask)
            n = lane.index + loop.index
            return [context.broadcast(spec.key(b, batch, n, d, lane), lanes)]

        zeros: list[list[Operand]] = [[0.0]] * tile.count
        for i, (score,) in enumerate(multiply_tile(context, spec.depth, queries, keys, zeros)):
            context.write(context.score_offset(i, loop.index - start), score)
