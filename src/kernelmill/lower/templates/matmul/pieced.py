"""The schedule for products of f32 by pieces: tiles of pieces, or FMA where numbers are not
ordinary (lower/emit/pieces.py)."""

from __future__ import annotations

from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, maximum
from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder, Loop
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.emit.pieces import Magnitudes, Pieces, are_ordinary
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.templates.matmul.bind_pieces import pack_pieces
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.blocked_tiles import (
    InDepthBlocks,
    ReadA,
    ReadB,
    ThroughScratch,
)
from kernelmill.lower.templates.matmul.packing import Packable
from kernelmill.lower.templates.matmul.spec import Contraction, Exact, Operand, loader
from kernelmill.lower.templates.matmul.store import at_most
from kernelmill.lower.templates.matmul.tile_grid import TaskPlace
from kernelmill.lower.templates.matmul.tile_schedule import TileSchedule
from kernelmill.lower.templates.matmul.tiled import Tiled

_MOST_ROWS = 12
"""Of a register tile of two vectors (blocked.py)."""

_DEPTH_BLOCK = 256


@dataclass(frozen=True)
class PieceLayout:
    """Tiles of B's pieces, and its columns' magnitudes."""

    pieces: Pieces

    def pack(self, product: Packable) -> PackedWeights:
        """Pack B, if it is constant."""
        return pack_pieces(
            product.context, product.roles, self.pieces, product.unit, product.origin
        )


@dataclass(frozen=True)
class Pieced(TileSchedule):
    """Tasks by `tiled`, or by `exact` where their numbers are not ordinary: both cut C alike."""

    tiled: Tiled
    exact: Blocked

    any_rows = True

    @staticmethod
    def of(tiled: Tiled, exact: Exact) -> Pieced:
        """Combine `tiled` with the exact schedule that has the same tasks."""
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
        """Return the bytes of a thread's scratch, which both schedules use from its beginning."""
        assert spec.exact is not None
        exact = self.exact.scratch_bytes(spec.exact.contraction)
        return maximum(self.tiled.scratch_bytes(spec), exact)

    @classmethod
    def plan(
        cls, spec: Contraction, machine: Machine, candidate: Candidate = OPEN
    ) -> Pieced | None:
        """Plan the schedule where operands are pieces of f32, else None."""
        tiled = None if spec.exact is None else Tiled.plan(spec, machine, candidate)
        return None if tiled is None or spec.exact is None else cls.of(tiled, spec.exact)

    @classmethod
    def layout(
        cls, product: Packable, machine: Machine, candidate: Candidate
    ) -> PieceLayout | None:
        """Return the layout in tiles of pieces, None for a product without pieces."""
        return None if product.pieces is None else PieceLayout(product.pieces)

    def emit(self, place: TaskPlace) -> None:
        """Emit a task by tiles of pieces, or by FMA."""
        _emit(place, self)


def _emit(place: TaskPlace, schedule: Pieced) -> None:
    builder, spec, exact = place.builder, place.spec, place.spec.exact
    assert exact is not None
    contraction = exact.contraction
    (depth,) = contraction.k
    context = EmitContext(builder, place.lane, contraction.accumulate)
    rows = _part(schedule.rows * schedule.row_tiles, place.row_block, spec.m)
    columns = _part(schedule.width * schedule.column_tiles, place.column_block, spec.n)
    a = _magnitudes(context, contraction.a, place.batch, *rows, contraction.m, depth)
    if exact.magnitudes:
        b = _packed_magnitudes(context, exact.magnitudes, *columns, contraction.n)
    else:
        b = _magnitudes(context, contraction.b, place.batch, *columns, contraction.n, depth)
    ordinary = are_ordinary(builder, exact.pieces, a, b, depth)
    with builder.when(ordinary) as branch:
        schedule.tiled.emit(place)
    with builder.otherwise(branch):
        schedule.exact.emit(replace(place, spec=contraction))


def _part(most: int, block: Dim, size: Dim) -> tuple[Dim, Dim]:
    """Return the first of a task's rows or columns, and their number."""
    return block * most, at_most(most, size, block * most)


def _magnitudes(
    context: EmitContext, operand: Operand, batch: Dims, first: Dim, count: Dim, size: Dim,
    depth: Dim,
) -> Magnitudes:  # fmt: skip
    """Return the magnitudes over all k of `count` of the `size` rows of A or columns of B."""
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
    """Join the magnitudes of these numbers into the carried ones. Masked lanes are 0."""
    known = Magnitudes(*loop.carried)
    joined = known.joined(builder, Magnitudes.of(builder, values))
    loop.carry(joined.least, joined.most)


def _packed_magnitudes(
    context: EmitContext, names: tuple[str, ...], first: Dim, count: Dim, size: Dim
) -> Magnitudes:
    """Return the magnitudes of columns of a constant B, which are in two buffers."""
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
