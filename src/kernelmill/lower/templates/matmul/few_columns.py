"""Products with few columns, such as a head with some classes: sums run along k, then across lanes.

Vectors along n would have most of their lanes beyond the last column.
"""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, minimum, mod
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, part_count, size_hint
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along, contiguity
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.packed import PackedWeights, panel_index
from kernelmill.lower.schedule.candidate import OPEN, Candidate, tile_ns
from kernelmill.lower.templates.matmul.along_k import AlongK, column_in_place, dot_products
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.packing import Packable, ProductSizes, pack_panels
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tile_schedule import TaskPlace, vector_work

_MOST_ROWS = 8
"""Rows of a tile: more would not be read faster."""

_KEPT = 3
"""Registers that are no sums and no columns: A's vector, a mask, and one to spare."""

_ACROSS = 11.0
"""Vector operations for adding up the lanes of a sum and putting it into scratch."""

_BROADCAST_ROWS = 8
"""Rows of the register tile that such products would have with vectors along n."""


@dataclass(frozen=True)
class Columns:
    """A constant B as one column after the other, which is how a linear layer has its weights."""

    def pack(self, product: Packable) -> PackedWeights:
        """Pack B, if it is the same for every batch index."""
        b = pack_panels(product.context, product.roles.right, 1, product.unit)
        return PackedWeights(b=b, packing=self)


@dataclass(frozen=True, kw_only=True)
class FewColumns(AlongK):
    """All columns of C, no more than a vector has, by some rows at a time."""

    columns: int

    any_rows = True

    @classmethod
    def plan(
        cls, spec: Contraction, machine: Machine, candidate: Candidate = OPEN
    ) -> FewColumns | None:
        """Plan the schedule where both operands have vectors along k that pay, else None."""
        columns, lanes = spec.n, machine.isa.lanes(spec.accumulate)
        packed = isinstance(spec.b.layout, Columns)
        if not isinstance(columns, int) or not (packed or _reads_along_k(spec)):
            return None
        rows = _rows(spec.m, columns, machine)
        sizes = ProductSizes.of(spec)
        if not packed and not _pays(sizes, columns, machine):
            return None
        tile = _tile_ns(sizes, rows, columns, machine)
        bytes = rows * size_hint(spec.depth) * spec.accumulate.bytes

        def task_ns(row_tiles: int, _: int) -> float:
            return row_tiles * (tile + machine.streaming(bytes)) + machine.task_ns

        schedule = cls(
            lanes=lanes, rows=rows, vectors=1, columns=columns,
            use_fma=machine.isa.has_fma and spec.accumulate.is_float,
            work=vector_work(spec, lanes, machine),
        )  # fmt: skip
        return schedule.cut(spec, task_ns, candidate)

    @classmethod
    def layout(cls, product: Packable, machine: Machine, candidate: Candidate) -> Columns | None:
        """Return `Columns` if B is constant and this schedule will be the one, else None."""
        roles, sizes, unit = product.roles, product.sizes, product.unit
        special = product.each or product.computes_b or unit.rows > 1 or unit.group == 4
        if special or not isinstance(sizes.n, int) or not product.context.is_constant(roles.b):
            return None
        if not _pays(sizes, sizes.n, machine):
            return None
        along, _ = contiguity(roles.left, product.context.stored)
        return Columns() if along is Along.K else None

    def emit(self, place: TaskPlace) -> None:
        """Emit all of a task's tiles."""
        context = ContractionContext.at(place, self)
        with context.row_tiles() as row:
            _sum_tile(context, row)
            context.store_tile(row, 0, 0)


# ---- the cost model -------------------------------------------------------------------------


def _reads_along_k(spec: Contraction) -> bool:
    """Return whether both operands are contiguous along k, neither of them packed."""
    special = spec.rows is not None or spec.group == 4 or spec.unit.rows > 1 or spec.b.panelled
    loose = spec.a.packed is None and spec.b.packed is None and spec.b.source is None
    along = spec.a.contiguous_along is Along.K and spec.b.contiguous_along is Along.K
    return loose and along and not special


def _rows(m: Dim, columns: int, machine: Machine) -> int:
    """Return the rows of a tile: the cheapest for each row that registers have room for."""
    room = machine.isa.vector_registers - columns - _KEPT
    most = min(_MOST_ROWS, max(1, room // max(columns, 1)), max(1, size_hint(m)))
    return min(range(most, 0, -1), key=lambda rows: tile_ns(rows, columns, machine) / rows)


def _pays(sizes: ProductSizes, columns: int, machine: Machine) -> bool:
    """Return whether a row takes less time than with vectors along n."""
    lanes, room = machine.isa.lanes(sizes.accumulate), machine.isa.vector_registers
    if not 1 < columns < lanes or columns + 1 + _KEPT > room:
        return False
    rows, depth = _rows(sizes.m, columns, machine), size_hint(sizes.depth)
    broadcast = min(_BROADCAST_ROWS, max(1, size_hint(sizes.m)))
    along_n = depth * tile_ns(broadcast, 1, machine) / broadcast
    return depth >= lanes and _tile_ns(sizes, rows, columns, machine) / rows < along_n


def _tile_ns(sizes: ProductSizes, rows: int, columns: int, machine: Machine) -> float:
    """Return the nanoseconds of a tile: its products, adding up lanes, and columns that come anew
    for each tile where they do not stay in the first cache."""
    depth, dtype = size_hint(sizes.depth), sizes.accumulate
    products = part_count(depth, machine.isa.lanes(dtype)) * tile_ns(rows, columns, machine)
    bytes = columns * depth * dtype.bytes
    brought = 0.0 if machine.level(bytes) == "l1" else machine.passing(bytes)
    return products + machine.time(_ACROSS * rows * columns, {}) + brought


# ---- the code -------------------------------------------------------------------------------


def _sum_tile(context: ContractionContext[FewColumns], tile: Dim) -> None:
    """Sum all columns of a tile's rows, into scratch; rows past the end are the last one again."""
    schedule, spec = context.schedule, context.spec
    first = tile * schedule.rows
    rows = [first + i for i in range(schedule.rows)]
    if mod(spec.m, schedule.rows) != 0:
        rows = [minimum(row, spec.m - 1) for row in rows]
    sums = dot_products(
        context, rows, schedule.columns, lambda n, k, lane: _column(context, n, k, lane)
    )
    for number, value in enumerate(sums):
        row, column = divmod(number, schedule.columns)
        context.write(row * schedule.width + column, value)


def _column(context: ContractionContext[FewColumns], n: int, k: Dims, lane: Lane) -> Value:
    builder, spec, lanes = context.builder, context.spec, context.schedule.lanes
    name, group = spec.b.packed, spec.group
    if name is None:
        return column_in_place(context, n, k, lane)
    mask, depth = lane.mask, Depth.whole(spec.k)
    if mask is not None and group > 1:
        left = builder.index((depth.axes[-1] - k[-1]) * group)
        mask = builder.op("lane_mask", left, lanes=lanes * group)
    dtype, at = context.packed_dtype(name), panel_index(n, depth.number(k), spec.depth, 1)
    value = builder.load(name, at * group, dtype, lanes * group, mask)
    if group > 1:
        return builder.op("bitcast", value, dtype=spec.element, lanes=lanes)
    return builder.cast(value, context.dtype)
