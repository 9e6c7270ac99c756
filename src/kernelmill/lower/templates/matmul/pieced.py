"""Products of f32 as sums of bf16 products (lower/emit/pieces.py): the choice of this method, its
operands, their layout on tiles, and the test for ordinary numbers.
"""

from __future__ import annotations

from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv
from kernelmill.core.dtype import BF16, F32
from kernelmill.core.target.dot_units import MULTIPLY_ADD, TILE_BF16, DotUnit
from kernelmill.core.target.machine import Machine
from kernelmill.core.text import counted
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder, Loop
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, size_hint
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.emit.pieces import PIECES, Magnitudes, Pieces, are_ordinary, piece
from kernelmill.lower.schedule.template import GroupContext
from kernelmill.lower.templates.matmul.context import count_within
from kernelmill.lower.templates.matmul.packing import Packable
from kernelmill.lower.templates.matmul.spec import (
    Contraction,
    Exact,
    Operand,
    Planes,
    Roles,
    loader,
)
from kernelmill.lower.templates.matmul.tile_schedule import TaskPlace, TileSchedule
from kernelmill.lower.weights.dot_operand import DotOperand
from kernelmill.lower.weights.panel_views import constant_rows, tile_view_of_b

NO_TILES = "this instruction set has no tiles of bfloat16"

_SPLITTING = 12.0
"""Vector operations for each piece of a vector of numbers that is made in a call."""

_CHECKING = 4.0
"""The same for knowing that it is ordinary."""


def pieces_of(seed: Node, roles: Roles, machine: Machine, packed: bool) -> Pieces | str:
    """Return the pieces that a product of f32 is computed from, or the reason why FMA, faster or
    more exact, computes it. `packed`: B is constant."""
    unit, products = machine.isa.tile_unit(BF16, BF16), seed.attrs.get("products", max(PIECES))
    if unit is None:
        return NO_TILES
    if products == 0:
        return "config.float32_pieces is False"
    assert isinstance(products, int)
    (k,), pieces = roles.k, PIECES[products]
    if isinstance(k, int) and k < pieces.least_depth:
        return f"more exact where k is below {pieces.least_depth}"
    sizes = size_hint(roles.m), size_hint(roles.n), size_hint(k)
    return pieces if _pays(pieces, unit, machine, sizes, packed) else "faster at these sizes"


def is_f32_product(seed: Node, roles: Roles) -> bool:
    """Return whether torch's setting of the precision of f32 products applies."""
    return seed.op in ("matmul", "grouped_matmul") and roles.a.dtype == F32


def product_text(found: Pieces | str) -> str:
    """Return the result of `pieces_of` as text for reports."""
    if isinstance(found, str):
        return f"FMA: {found}"
    return f"{counted(len(found.pairs), 'product')} of bfloat16 for each"


def _pays(
    pieces: Pieces, unit: DotUnit, machine: Machine, sizes: tuple[int, int, int], packed: bool
) -> bool:
    """Return whether pieces take less time than FMA, by arithmetic or by bringing in B."""
    m, n, k = sizes
    lanes = machine.isa.lanes(F32)
    by_fma = m * n * k / (lanes * machine.dot_rate(MULTIPLY_ADD))
    tiles = -(-m // unit.rows) * -(-n // unit.columns) * -(-k // (unit.group * unit.depth))
    by_pieces = tiles * len(pieces.pairs) / machine.dot_rate(unit)
    per_vector = _SPLITTING * pieces.pieces + _CHECKING
    split = m * k * per_vector + (0.0 if packed else n * k * per_vector)
    stored = 4.0 * m * n
    by_pieces += machine.time((split + stored) / lanes, {})
    bytes = BF16.bytes * pieces.pieces if packed else F32.bytes
    brought = machine.streaming(k * n * F32.bytes), machine.streaming(k * n * bytes)
    return max(by_pieces, brought[1]) < max(by_fma, brought[0])


def pack_pieces(
    context: GroupContext, roles: Roles, pieces: Pieces, unit: DotUnit, origin: str
) -> PackedWeights:
    """Pack B's pieces in tiles, and its columns' magnitudes, if it is constant."""
    if not all(isinstance(size, int) for size in (roles.n, *roles.k)):
        return PackedWeights()
    builder = GraphBuilder("magnitudes", origin)
    rows = constant_rows(roles.right, builder)
    if rows is None:
        return PackedWeights()
    magnitudes = [context.pack(value) for value in magnitudes_of_rows(rows, builder)]
    planes = [
        tile_view_of_b(replace(roles.right, value=value), unit, origin)
        for value in piece_values(roles.b, pieces.pieces, origin)
    ]
    stored = [None if plane is None else context.pack(plane) for plane in planes]
    locations = tuple(one for one in (*stored, *magnitudes) if one is not None)
    return PackedWeights(pieces=locations)


def in_pieces(exact: Contraction, pieces: Pieces, buffers: tuple[str, ...]) -> Contraction:
    """Rewrite a contraction of f32 as one of pieces. `buffers` are those of B's pieces and of its
    columns' magnitudes, if it is packed."""
    numbers = range(pieces.pieces)
    (k,) = exact.k
    a = tuple(_in_words(exact.a, k, number) for number in numbers)
    b = tuple(
        Operand(None, packed=buffers[number]) if buffers else _in_words(exact.b, k, number)
        for number in numbers
    )
    return replace(
        exact,
        k=(ceildiv(k, TILE_BF16.group),),
        unit=TILE_BF16,
        split=Planes(a, b, pieces.pairs),
        exact=Exact(exact, pieces, buffers[pieces.pieces :]),
    )


def _in_words(operand: Operand, k: Dim, number: int) -> Operand:
    """Return a reader of an operand's pieces of this number, in words."""
    load = loader(operand)

    def word(
        builder: KernelBuilder, batch: Dims, outer: Dim, at: Dims, lane: Lane | None
    ) -> Register:
        def read(batch: Dims, outer: Dim, k: Dims, lane: Lane | None) -> Register:
            return piece(builder, load(builder, batch, outer, k, lane), number)

        return DotOperand(BF16, k, read).loader(builder, batch, outer, at, lane)

    return replace(operand, load=word, direct=False, prefetch=None)


def piece_values(value: Value, count: int, origin: str) -> list[Value]:
    """Return the highest `count` pieces of a value, each a value of bf16."""
    builder = GraphBuilder("pieces", origin)
    found: list[Value] = []
    rest = value
    for _ in range(count):
        if found:
            rest = builder.emit("sub", rest, builder.emit("cast", found[-1], dtype=F32))
        found.append(builder.emit("cast", rest, dtype=BF16))
    return found


def magnitudes_of_rows(rows: Value, builder: GraphBuilder) -> tuple[Value, Value]:
    """Return two values (1, rows) for the rows of a value (1, rows, numbers): the least magnitude
    other than 0 (infinity if all are 0), and the largest (NaN if one is NaN)."""
    absolute = builder.emit("abs", rows)
    zero, infinity = (
        builder.emit("full", value=number, dtype=F32, shape=rows.shape)
        for number in (0.0, float("inf"))
    )
    others = builder.emit("where", builder.emit("eq", absolute, zero), infinity, absolute)
    least = builder.emit("reduce_min", others, dims=(2,))
    return least, builder.emit("reduce_max", absolute, dims=(2,))


@dataclass(frozen=True)
class PieceLayout:
    """Tiles of B's pieces, and its columns' magnitudes."""

    pieces: Pieces

    def pack(self, product: Packable) -> PackedWeights:
        """Pack B, if it is constant."""
        return pack_pieces(
            product.context, product.roles, self.pieces, product.unit, product.origin
        )


def is_ordinary(place: TaskPlace, schedule: TileSchedule, exact: Exact) -> Register:
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


def _join(builder: KernelBuilder, loop: Loop, values: Register) -> None:
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
