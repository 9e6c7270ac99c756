"""Many query rows: blocks of keys and values are packed, and all rows of the task work on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.microkernel import transpose
from kernelmill.lower.templates.attention.blocks import PanelBlocks, Regions
from kernelmill.lower.templates.attention.context import AttentionContext, Row, RowTile, row_of_tile
from kernelmill.lower.templates.attention.key_blocks import each_block
from kernelmill.lower.templates.attention.softmax import (
    add_weighted_values,
    exponentiate,
    multiply_tile,
)
from kernelmill.lower.templates.attention.spec import AttentionSpec, packed_tile, round_up

_SQUARE = 4
"""Side of the squares in which keys are transposed: larger ones take LLVM long to compile."""


@dataclass(frozen=True, kw_only=True)
class Packed(PanelBlocks):
    """Many rows: blocks of keys and values are packed, keys in panels."""

    @classmethod
    def plan(cls, spec: AttentionSpec, machine: Machine, rows_at_a_time: int) -> Packed:
        """Plan the schedule, which every attention can have."""
        return cls.cut(spec, machine, *packed_tile(spec, machine))

    def regions(self, spec: AttentionSpec) -> Regions:
        """Return regions for queries, and blocks of keys and values."""
        assert isinstance(spec.depth, int) and isinstance(spec.value_depth, int)
        query_row, value_row = (
            round_up(size, self.lanes) for size in (spec.depth, spec.value_depth)
        )
        rows = round_up(self.rows, self.tile_rows)
        return Regions(
            rows, self.panel * self.lanes, rows * query_row, self.keys * spec.depth,
            self.keys * value_row,
        )  # fmt: skip

    def emit(self, builder: KernelBuilder, spec: AttentionSpec, batch: Dims, first: Dim) -> None:
        """Emit the query rows of one task."""
        _emit(AttentionContext.of(builder, spec, self), batch, first)


def _emit(context: AttentionContext, batch: Dims, first: Dim) -> None:
    b, spec = context.builder, context.spec
    stop = minimum(first + context.schedule.rows, spec.rows)
    with b.loop(first, stop, prefix="m") as loop:
        context.start_row(Row(batch, loop.index, loop.index - first))
    each_block(context, batch, first, stop, partial(_emit_block, first=first, stop=stop))
    with b.loop(first, stop, prefix="m") as loop:
        context.finish_row(Row(batch, loop.index, loop.index - first))


def _emit_block(
    context: AttentionContext, batch: Dims, start: Dim, end: Dim, first: Dim, stop: Dim
) -> None:
    _pack_keys(context, batch, start, end)
    _pack_values(context, batch, start, end)
    tile_rows = context.schedule.tile_rows
    skipped = context.unseen_rows(start, first)
    with context.builder.loop(skipped, stop - first, tile_rows, prefix="r") as loop:
        row = partial(row_of_tile, context, batch, first, loop.index)
        tile = RowTile(loop.index, tile_rows, row)
        seen = context.seen_keys(end, first + loop.index)
        _emit_tile(context, tile, start, seen - start)


def _emit_tile(context: AttentionContext, tile: RowTile, start: Dim, count: Dim) -> None:
    """Emit a register tile's rows against `count` keys of the packed block at `start`."""
    scratch = context.scratch
    panel = scratch.width // context.schedule.lanes
    panels = ceildiv(count, scratch.width)
    queries = partial(context.query_elements, tile)
    with context.builder.loop(0, panels, prefix="p") as loop:
        base = scratch.keys + loop.index * context.spec.depth * scratch.width

        def keys(d: Dim) -> Sequence[Value]:
            return context.read_vectors(base + d * scratch.width, panel)

        zeros = [[0.0] * panel] * tile.count
        scores = multiply_tile(context, context.spec.depth, queries, keys, zeros)
        for i, row in enumerate(scores):
            for j, score in enumerate(row):
                column = loop.index * scratch.width + j * context.schedule.lanes
                context.write(context.score_offset(i, column), score)
    exponentiate(context, tile, start, count, ceildiv(count, context.schedule.lanes))

    def values(k: Dim, *, first: int, width: int) -> Sequence[Value]:
        return context.read_vectors(_place_of_value(context, k, first), width)

    add_weighted_values(context, tile, count, values)


def _pack_keys(context: AttentionContext, batch: Dims, start: Dim, end: Dim) -> None:
    """Transpose keys start..end-1 into panels, each with `width` keys side by side."""
    b, spec, width = context.builder, context.spec, context.scratch.width
    with b.loop(0, ceildiv(end - start, width), prefix="p") as loop:
        base = context.scratch.keys + loop.index * spec.depth * width
        left = start + loop.index * width
        right = minimum(left + width, end)
        if spec.key_contiguous_along is Along.K:
            _transpose_keys(context, batch, base, left, right)
        else:
            _copy_keys(context, batch, base, left, right)


def _transpose_keys(
    context: AttentionContext, batch: Dims, base: Dim, left: Dim, right: Dim
) -> None:
    """Transpose keys contiguous along the depth: small squares, single elements at the edges."""
    b, spec, width = context.builder, context.spec, context.scratch.width
    assert isinstance(spec.depth, int)
    side = min(context.schedule.lanes, _SQUARE)
    depth, whole = spec.depth // side * side, left + (right - left) // side * side
    with b.loop(left, whole, side, prefix="n") as keys, b.loop(0, depth, side) as loop:
        n, d = keys.index, loop.index
        square = [context.load_vector(spec.key, batch, n + i, d, side) for i in range(side)]
        for i, vector in enumerate(transpose(b, square)):
            context.write(base + (d + i) * width + n - left, vector)
    for first, stop, from_depth in ((left, whole, depth), (whole, right, 0)):
        if from_depth == spec.depth:
            continue
        with b.loop(first, stop, prefix="n") as keys, b.loop(from_depth, spec.depth) as loop:
            key = spec.key(b, batch, keys.index, loop.index, None)
            context.write(base + loop.index * width + keys.index - left, key)


def _copy_keys(context: AttentionContext, batch: Dims, base: Dim, left: Dim, right: Dim) -> None:
    b, spec, lanes = context.builder, context.spec, context.schedule.lanes
    with b.loop(0, spec.depth, prefix="d") as loop:
        for j in range(context.scratch.width // lanes):
            n = left + j * lanes
            lane = context.lane(
                lanes, None if context.whole_blocks else context.lanes_below(right - n)
            )
            key = context.broadcast(spec.key(b, batch, lane.index + n, loop.index, lane), lanes)
            context.write(base + loop.index * context.scratch.width + j * lanes, key)


def _pack_values(context: AttentionContext, batch: Dims, start: Dim, end: Dim) -> None:
    spec, whole = context.spec, context.schedule.lanes
    with context.builder.loop(start, end, prefix="n") as loop:
        for first, lanes in context.row_vectors(spec.value_depth):
            value = context.load_vector(spec.value, batch, loop.index, first, lanes)
            offset = _place_of_value(context, loop.index - start, first // whole) + first % whole
            context.write(offset, value)


def _place_of_value(context: AttentionContext, key: Dim, vector: int) -> Dim:
    """Return the offset in scratch of this vector of a value. Values are rows; where weights are
    read in vectors along the keys they are panels as wide as register tiles, so that loads of
    neighbouring keys are near each other."""
    schedule, scratch = context.schedule, context.scratch
    if not schedule.by_lane:
        return scratch.values + key * scratch.value_row + vector * schedule.lanes
    last, width = next(
        (last, width)
        for last, width in zip(
            accumulate(schedule.value_panels), schedule.value_panels, strict=True
        )
        if vector < last
    )
    first = last - width
    panel = scratch.values + first * schedule.keys * schedule.lanes
    return panel + (key * width + vector - first) * schedule.lanes
