"""The emit context of a contraction: the task's place, its tiles, and scratch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod, product
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.kernel.ir import SCRATCH, Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import ravel, unravel
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.packed import panel_index
from kernelmill.lower.templates.matmul.blocked_tiles import BlockedTiles, ScratchLayout
from kernelmill.lower.templates.matmul.spec import Contraction, FindRows, Found, Operand
from kernelmill.lower.templates.matmul.tile_schedule import TaskPlace, TileSchedule

ScheduleT = TypeVar("ScheduleT", bound=TileSchedule)


@dataclass(frozen=True)
class ContractionContext(EmitContext, Generic[ScheduleT]):
    """The emit context that every emitter of the template takes.

    `batch`, `row_block` and `column_block` are the task's place; tiles are numbered through the
    whole of C.
    """

    spec: Contraction
    schedule: ScheduleT
    batch: Dims
    row_block: Dim
    column_block: Dim

    @classmethod
    def at(cls, place: TaskPlace, schedule: ScheduleT) -> Self:
        """Make the context of a task."""
        spec = place.spec
        return cls(
            place.builder, place.lane, spec.accumulate, spec, schedule, place.batch,
            place.row_block, place.column_block,
        )  # fmt: skip

    @property
    def first_row_tile(self) -> Dim:
        """First tile of the task along m."""
        return self.row_block * self.schedule.row_tiles

    def along(self, k: Dims) -> Dims:
        """Return the k of a vector along the last axis, from `k` on."""
        return (*k[:-1], k[-1] + self.lane.index)

    def zero_beyond(self, operand: Operand, value: Value, lane: Lane) -> Value:
        """Put zeros in the lanes of a vector along k beyond the last k, since values computed
        there, such as a padding's, may be infinite."""
        if lane.mask is None or operand.direct:
            return value
        zero = 0.0 if value.type.dtype.is_float else 0
        return self.builder.op("select", lane.mask, value, zero)

    @contextmanager
    def row_tiles(self) -> Generator[Dim]:
        """Open a loop over the task's tiles along m."""
        count = ceildiv(self.spec.m, self.schedule.rows)
        with self._tiles(self.row_block, self.schedule.row_tiles, count) as tile:
            yield tile

    @contextmanager
    def column_tiles(self) -> Generator[Dim]:
        """Open a loop over the task's tiles along n."""
        count = ceildiv(self.spec.n, self.schedule.width)
        with self._tiles(self.column_block, self.schedule.column_tiles, count) as tile:
            yield tile

    @contextmanager
    def _tiles(self, block: Dim, size: int, count: Dim) -> Generator[Dim]:
        if size == 1:
            yield block
            return
        stop = minimum(count, block * size + size)
        with self.builder.loop(block * size, stop, prefix="tile") as loop:
            yield loop.index

    # ---- the epilogue ----------------------------------------------------------------------------

    def store_tile(self, row: Dim, column: Dim, sums: Dim, shift: Dim | None = None) -> None:
        """Hand a tile's rows and vectors that are within C to the caller's epilogue, from scratch
        at `sums`; less a vector for each column, at `shift`."""
        spec, schedule, builder = self.spec, self.schedule, self.builder
        first, rows = row * schedule.rows, count_within(schedule.rows, spec.m, row * schedule.rows)
        if spec.stores_chains and mod(spec.n, schedule.width) == 0:
            # All vectors of a row at once, which do not wait for each other.
            its, places = self.of_lanes(schedule.width), nullcontext[Dim](0)
        else:
            its, places = self, self.vectors(column)
        lanes = its.lane.count
        with builder.loop(0, rows, prefix="m") as i, places as place:
            value = self.read(sums + i.index * schedule.width + place, lanes)
            if shift is not None:
                value = builder.op("sub", value, self.read(shift + place, lanes))
            start = column * schedule.width + place
            its.store(first + i.index, start, its.lane_at(start), value)

    @contextmanager
    def vectors(self, column: Dim) -> Generator[Dim]:
        """Open a loop over the places of a column tile's vectors that are within C."""
        lanes, vectors = self.schedule.lanes, self.schedule.vectors
        count = count_within(vectors, ceildiv(self.spec.n, lanes), column * vectors)
        with self.builder.loop(0, count, prefix="v") as loop:
            yield loop.index * lanes

    def lane_at(self, column: Dim) -> Lane:
        """Return the lane of a vector that begins with a column of C."""
        return self.masked(self.spec.n - column, self.spec.n)

    def store(self, row: Dim, column: Dim, lane: Lane, value: Value) -> None:
        """Store sums of neighbouring columns, from `column` on."""
        at = column + self.lane.index
        self.spec.store(self.builder, self.batch, row, at, lane, value)


class BlockedContext(ContractionContext[BlockedTiles]):
    """The emit context of a contraction under a blocked schedule."""

    @cached_property
    def scratch(self) -> ScratchLayout:
        """Regions of scratch."""
        return self.schedule.scratch(self.spec)

    @property
    def halves(self) -> DotUnit | None:
        """Unit that multiplies numbers of words split into even and odd ones, else None."""
        unit = self.schedule.unit(self.spec)
        return None if unit == self.spec.unit else unit

    def columns(self, tile: Dim, place: int) -> Lane:
        """Return the lane of a vector that begins `place` columns behind the first of a column tile
        whose products are summed: of a known size tiles have no vectors behind the last column."""
        n, width = self.spec.n, self.schedule.width
        left = n - tile * width - place
        return self.masked(left, n) if isinstance(n, int) else self.masked(left, n, width, place)

    def panel(self, tile: Dim, k: Dim) -> Dim:
        """Return the element number of the packed B's column tile number `tile` at `k`."""
        spec, width = self.spec, self.schedule.width
        if spec.b.each:
            tile = ravel(self.batch, spec.batch) * ceildiv(spec.n, width) + tile
        return panel_index(tile, k, spec.depth, width)

    def read_copied(self, offset: Dim, lanes: int = 1) -> Value:
        """Load elements of an operand that was copied into scratch."""
        return self.builder.load(SCRATCH, offset, self.spec.element, lanes)


def count_within(count: int, size: Dim, start: Dim) -> Dim:
    """Return how many of `count` positions from `start` on are within `size`."""
    return count if mod(size, count) == 0 else minimum(count, size - start)


ContextT = TypeVar("ContextT", bound=ContractionContext[Any])


def emit_rows(context: ContextT, number: Dim, emit: Callable[[ContextT], None]) -> None:
    """Emit a task by `emit`, with the rows that exist; `number` is `TaskPlace.number`."""
    if context.spec.rows is None:
        emit(context)
    else:
        _emit_found_rows(context, number, context.spec.rows, emit)


def _emit_found_rows(
    context: ContextT, rest: Dim, find: FindRows, emit: Callable[[ContextT], None]
) -> None:
    """A task of a contraction that finds its rows: threads, which have neighbouring tasks, share
    the columns of a batch index and not the batch."""
    builder, size = context.builder, product(context.spec.batch)
    place = builder.let(builder.index(mod(rest, size)), 0, size - 1)
    found = find(builder, unravel(place, context.spec.batch))
    context = replace(
        context,
        spec=replace(context.spec, m=found.rows),
        batch=unravel(place, context.spec.batch),
        column_block=floordiv(rest, size),
    )
    first = builder.index(context.first_row_tile * context.schedule.rows)
    with builder.when(builder.op("gt", builder.index(found.rows), first)):
        emit(context)
    with builder.when(builder.op("eq", builder.index(context.row_block), 0)):
        _sums_of_nothing(context, found)


def _sums_of_nothing(context: ContractionContext[Any], found: Found) -> None:
    """Store zeros in the task's columns of the rows behind those that were found."""
    with (
        context.builder.loop(found.rows, found.end, prefix="m") as row,
        context.column_tiles() as tile,
        context.vectors(tile) as place,
    ):
        column = tile * context.schedule.width + place
        context.store(row.index, column, context.lane_at(column), context.zeros())
