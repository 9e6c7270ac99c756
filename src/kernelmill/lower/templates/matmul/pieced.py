"""Products of f32 by pieces on tiles: their layout, and whether a task's numbers are ordinary
(lower/emit/pieces.py)."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32
from kernelmill.kernel.builder import KernelBuilder, Loop
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.emit.pieces import Magnitudes, Pieces, are_ordinary
from kernelmill.lower.templates.matmul.bind_pieces import pack_pieces
from kernelmill.lower.templates.matmul.context import count_within
from kernelmill.lower.templates.matmul.packing import Packable
from kernelmill.lower.templates.matmul.spec import Exact, Operand, loader
from kernelmill.lower.templates.matmul.tile_schedule import TaskPlace, TileSchedule


@dataclass(frozen=True)
class PieceLayout:
    """Tiles of B's pieces, and its columns' magnitudes."""

    pieces: Pieces

    def pack(self, product: Packable) -> PackedWeights:
        """Pack B, if it is constant."""
        return pack_pieces(
            product.context, product.roles, self.pieces, product.unit, product.origin
        )


def is_ordinary(place: TaskPlace, schedule: TileSchedule, exact: Exact) -> Value:
    """Emit a bool: whether the numbers of a task's rows and columns are ordinary."""
    builder, spec, contraction = place.builder, place.spec, exact.contraction
    (depth,) = contraction.k
    context = EmitContext(builder, place.lane, contraction.accumulate)
    rows = _part(schedule.rows * schedule.row_tiles, place.row_block, spec.m)
    columns = _part(schedule.width * schedule.column_tiles, place.column_block, spec.n)
    a = _magnitudes(context, contraction.a, place.batch, *rows, contraction.m, depth)
    if exact.magnitudes:
        b = _packed_magnitudes(context, exact.magnitudes, *columns, contraction.n)
    else:
        b = _magnitudes(context, contraction.b, place.batch, *columns, contraction.n, depth)
    return are_ordinary(builder, exact.pieces, a, b, depth)


def _part(most: int, block: Dim, size: Dim) -> tuple[Dim, Dim]:
    """Return the first of a task's rows or columns, and their number."""
    return block * most, count_within(most, size, block * most)


def _magnitudes(
    context: EmitContext, operand: Operand, batch: Dims, first: Dim, count: Dim, size: Dim,
    depth: Dim,
) -> Magnitudes:  # fmt: skip
    """Return the magnitudes over all k of `count` of the `size` rows of A or columns of B."""
    builder, lane, load = context.builder, context.lane, loader(operand)
    lanes, none = lane.count, Magnitudes.none(builder, lane.count)
    carry = [none.least, none.most]
    if operand.contiguous_along is Along.K:
        with builder.loop(0, count, carry=carry, prefix="o") as outer:
            with builder.loop(0, depth, lanes, carry=outer.carried, prefix="k") as k:
                along = context.masked(depth - k.index, depth)
                at = first + outer.index, (k.index + lane.index,)
                _join(builder, k, load(builder, batch, *at, along))
            outer.carry(*k.results)
    else:
        with builder.loop(0, count, lanes, carry=carry, prefix="o") as outer:
            along = context.masked(size - first - outer.index, size)
            with builder.loop(0, depth, carry=outer.carried, prefix="k") as k:
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
    carry = [none.least, none.most]
    with builder.loop(0, count, lanes, carry=carry, prefix="o") as loop:
        at = first + loop.index
        exist = context.masked(size - at, size).mask
        least, most = (builder.load(name, at, F32, lanes, exist) for name in names)
        if exist is not None:
            least = builder.op("select", exist, least, float("inf"))
        joined = Magnitudes(*loop.carried).joined(builder, Magnitudes(least, most))
        loop.carry(joined.least, joined.most)
    return Magnitudes(*loop.results).reduced(builder)
