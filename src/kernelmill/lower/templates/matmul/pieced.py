"""The schedule for products of f32 by pieces: tiles of pieces, or FMA where numbers are not
ordinary (lower/emit/pieces.py)."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.core.dim import Dim, maximum
from kernelmill.core.dtype import F32
from kernelmill.kernel.builder import KernelBuilder, Loop
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.pieces import Magnitudes, are_ordinary
from kernelmill.lower.templates.matmul.block_tasks import BlockTasks
from kernelmill.lower.templates.matmul.blocked import (
    Blocked,
    InDepthBlocks,
    ReadA,
    ReadB,
    ThroughScratch,
)
from kernelmill.lower.templates.matmul.context import BlockedContext
from kernelmill.lower.templates.matmul.emit_blocked import emit_blocked
from kernelmill.lower.templates.matmul.spec import Contraction, Exact, Operand, loader
from kernelmill.lower.templates.matmul.store import at_most
from kernelmill.lower.templates.matmul.tiled import Tiled, TiledContext, emit_tiled

_MOST_ROWS = 12
"""Of a register tile of two vectors (heuristics.py)."""

_DEPTH_BLOCK = 256


@dataclass(frozen=True)
class Pieced(BlockTasks):
    """Tasks by `tiled`, or by `exact` where their numbers are not ordinary: both cut C alike."""

    tiled: Tiled
    exact: Blocked

    @staticmethod
    def of(tiled: Tiled, exact: Exact) -> Pieced:
        """With the exact schedule whose tasks are those of `tiled`."""
        rows = next(n for n in range(_MOST_ROWS, 0, -1) if tiled.rows % n == 0)
        (k,) = exact.contraction.k
        deep = not isinstance(k, int) or k > _DEPTH_BLOCK
        return Pieced(
            tiled,
            Blocked(
                lanes=tiled.lanes,
                rows=rows,
                vectors=tiled.vectors,
                a=ReadA.IN_PLACE if exact.contraction.a.direct else ReadA.COPIED,
                b=ReadB.COPIED,
                sums=InDepthBlocks(_DEPTH_BLOCK) if deep else ThroughScratch(),
                use_fma=True,
                work=tiled.work,
                row_tiles=tiled.row_tiles * (tiled.rows // rows),
                column_tiles=tiled.column_tiles,
            ),
        )

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.tiled.lanes

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.tiled.rows

    @property
    def vectors(self) -> int:
        """Vectors of columns of a block."""
        return self.tiled.vectors

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.tiled.width

    @property
    def row_tiles(self) -> int:
        """A task's blocks along m."""
        return self.tiled.row_tiles

    @property
    def column_tiles(self) -> int:
        """A task's blocks along n."""
        return self.tiled.column_tiles

    @property
    def work(self) -> Dim:
        """Estimated nanoseconds of all tasks on one core."""
        return self.tiled.work

    def scratch_bytes(self, spec: Contraction) -> Dim:
        """All of a thread's scratch, which both schedules use from its beginning."""
        assert spec.exact is not None
        exact = self.exact.scratch_bytes(spec.exact.contraction)
        return maximum(self.tiled.scratch_bytes(spec), exact)


@dataclass(frozen=True)
class PiecedTask:
    """A task of a contraction by pieces."""

    builder: KernelBuilder
    spec: Contraction
    schedule: Pieced
    batch: Dims
    row_block: Dim
    column_block: Dim

    @property
    def rows(self) -> tuple[Dim, Dim]:
        """The first row and how many there are."""
        most = self.schedule.rows * self.schedule.row_tiles
        return self.row_block * most, at_most(most, self.spec.m, self.row_block * most)

    @property
    def columns(self) -> tuple[Dim, Dim]:
        """The first column and how many there are."""
        most = self.schedule.width * self.schedule.column_tiles
        return self.column_block * most, at_most(most, self.spec.n, self.column_block * most)


def emit_pieced(task: PiecedTask, lane: Lane) -> None:
    """A task by tiles of pieces, or by FMA."""
    builder, spec, schedule = task.builder, task.spec, task.schedule
    assert spec.exact is not None
    exact = spec.exact.contraction
    (depth,) = exact.k
    place = task.batch, task.row_block, task.column_block
    context = EmitContext(builder, lane, exact.accumulate)
    a = _magnitudes(context, exact.a, task.batch, *task.rows, exact.m, depth)
    if spec.exact.magnitudes:
        b = _packed_magnitudes(context, spec.exact.magnitudes, *task.columns, exact.n)
    else:
        b = _magnitudes(context, exact.b, task.batch, *task.columns, exact.n, depth)
    ordinary = are_ordinary(builder, spec.exact.pieces, a, b, depth)
    with builder.when(ordinary) as branch:
        tiled = TiledContext(builder, lane, spec.accumulate, spec, schedule.tiled, *place)
        emit_tiled(tiled)
    with builder.otherwise(branch):
        blocked = BlockedContext(builder, lane, exact.accumulate, exact, schedule.exact, *place)
        emit_blocked(blocked)


def _magnitudes(
    context: EmitContext, operand: Operand, batch: Dims, first: Dim, count: Dim, size: Dim,
    depth: Dim,
) -> Magnitudes:  # fmt: skip
    """Of all k of `count` rows of A or columns of B, of which there are `size`."""
    builder, lane, load = context.builder, context.lane, loader(operand)
    lanes, none = lane.count, Magnitudes.none(builder, lane.count)
    carry = [(none.least.type, none.least), (none.most.type, none.most)]
    if operand.contiguous_along is Along.K:
        with builder.loop(0, count, carry=carry, prefix="o") as outer:
            inside = [(value.type, value) for value in outer.carried]
            with builder.loop(0, depth, lanes, carry=inside, prefix="k") as k:
                along = context.masked(depth - k.index, depth)
                at = first + outer.index, (k.index + lane.index,)
                _join(builder, k, load(builder, batch, *at, along))
            outer.carry(*k.results)
    else:
        with builder.loop(0, count, lanes, carry=carry, prefix="o") as outer:
            along = context.masked(size - first - outer.index, size)
            inside = [(value.type, value) for value in outer.carried]
            with builder.loop(0, depth, carry=inside, prefix="k") as k:
                at = first + outer.index + lane.index, (k.index,)
                _join(builder, k, load(builder, batch, *at, along))
            outer.carry(*k.results)
    return Magnitudes(*outer.results).reduced(builder)


def _join(builder: KernelBuilder, loop: Loop, values: Value) -> None:
    """Carry the magnitudes of these numbers too. Of lanes that are masked off they are 0."""
    known = Magnitudes(*loop.carried)
    joined = known.joined(builder, Magnitudes.of(builder, values))
    loop.carry(joined.least, joined.most)


def _packed_magnitudes(
    context: EmitContext, names: tuple[str, ...], first: Dim, count: Dim, size: Dim
) -> Magnitudes:
    """The same of a constant B, whose columns have theirs in two buffers."""
    builder, lanes = context.builder, context.lane.count
    none = Magnitudes.none(builder, lanes)
    carry = [(none.least.type, none.least), (none.most.type, none.most)]
    with builder.loop(0, count, lanes, carry=carry, prefix="o") as loop:
        at = first + loop.index
        exist = context.masked(size - at, size).mask
        least, most = (builder.load(name, at, F32, lanes, exist) for name in names)
        if exist is not None:
            least = builder.op("select", exist, least, float("inf"))
        joined = Magnitudes(*loop.carried).joined(builder, Magnitudes(least, most))
        loop.carry(joined.least, joined.most)
    return Magnitudes(*loop.results).reduced(builder)
