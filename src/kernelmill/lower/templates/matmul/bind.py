"""Binding of products, and of other nodes with their roles, as contractions.

Operands are read through the element emitter, so views, casts and inlined operators are part of the
kernel. A map kernel that runs once packs constant weights into panels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, reduce

from kernelmill.core.dim import (
    Dim,
    Sym,
    as_sym,
    ceildiv,
    linear_part,
    maximum,
    mod,
    of_atom,
    product,
    provably_nonnegative,
    sym,
)
from kernelmill.core.dtype import I8, I64, U8
from kernelmill.core.target.dot_units import MULTIPLY_ADD, TILE_BF16, DotUnit
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Let
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, fresh_axes
from kernelmill.lower.elements.domain import IndexAccess, collect
from kernelmill.lower.elements.emitter import Emitter, Location, Substitutes
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index, ravel
from kernelmill.lower.emit.access import Along, Matrix, PrefetchElement, contiguity, converts
from kernelmill.lower.emit.context import LINE_BYTES, accumulator
from kernelmill.lower.emit.packed import PackedWeights, is_half
from kernelmill.lower.emit.pieces import Pieces
from kernelmill.lower.emit.tiles import WORDS
from kernelmill.lower.fusion.costs import has_chains
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import Binding, Epilogue, GroupContext
from kernelmill.lower.templates.matmul.along_k import MOST_ROWS
from kernelmill.lower.templates.matmul.bind_four_bits import FourBitWeight, four_bit_weight
from kernelmill.lower.templates.matmul.packing import Layout, Packable, ProductSizes
from kernelmill.lower.templates.matmul.pieced import (
    in_pieces,
    is_f32_product,
    pieces_of,
    product_text,
)
from kernelmill.lower.templates.matmul.schedule import choose_layout
from kernelmill.lower.templates.matmul.spec import (
    AlignedRows,
    Contraction,
    Found,
    Operand,
    Places,
    Roles,
    everywhere,
)
from kernelmill.lower.weights.dequantise import (
    COLUMN,
    DEPTH,
    changes_only_between,
    depth_axes,
    is_one_group,
    leaves_along,
)
from kernelmill.lower.weights.dot_operand import DotOperand, unit_of_product
from kernelmill.lower.weights.four_bits import factors, made_of, widened

_FEW_ROWS = 8
"""Most rows with which a computed weight is multiplied as it is read, in f32."""


class ContractionBinding(Binding[Contraction]):
    """A group around a node that is a contraction.

    `roles_from` gives the roles with k as the operator has it, and rows counted from a first one.
    `each` batch index may have a matrix B of its own. Nothing in it changes: what is found out
    about the operands is kept once it is known.
    """

    def __init__(self, context: GroupContext, roles_from: Callable[[Node, Dim], Roles]) -> None:
        super().__init__(context)
        self.grouped = self.each = self.seed.op == "grouped_matmul"
        self._roles_from = roles_from

    # ---- what the operands are -------------------------------------------------------------------

    @cached_property
    def whole(self) -> Roles:
        """Roles with k as the operator has it; rows of a group are counted from 0."""
        return self._roles_from(self.seed, 0)

    def roles(self, first: Dim = 0) -> Roles:
        """Return the roles, with k cut into the groups of a weight that is computed. Of a grouped
        product `first` is the first row of a group."""
        roles = self._roles_from(self.seed, first) if self.grouped else self.whole
        if not self.computes_b or self.unit.group > 1:
            return roles
        (size,) = roles.k
        assert isinstance(size, int)
        axes = depth_axes(self._reads(roles.b), size)
        if self.factors is not None and is_one_group(axes):
            axes = (1, *axes)
        return replace(
            roles,
            k=axes,
            a_index=lambda bi, mi, ki: roles.a_index(bi, mi, (ravel(ki, axes),)),
            b_index=lambda bi, ni, ki: roles.b_index(bi, ni, (ravel(ki, axes),)),
        )

    @cached_property
    def computes_b(self) -> bool:
        """True if B is a weight that is dequantised as it is read."""
        return self.whole.b in self.context.dequantised_in_place

    @cached_property
    def four_bits(self) -> FourBitWeight | None:
        """B as numbers of four bits with factors, None if it has another form."""
        if not self.computes_b or self.grouped:
            return None
        return four_bit_weight(self.whole, self.context, self._reads)

    @cached_property
    def weight(self) -> Value:
        """Return B computed in f32, from bytes through i32."""
        return widened(self.whole.b, self.context.dequantised_in_place)

    @cached_property
    def factors(self) -> tuple[Value, Value] | None:
        """Return B without its scale, and the scale, the same for a group of k or for all, for few
        rows."""
        m, (size,) = self.whole.m, self.whole.k
        assert isinstance(size, int)
        if self.four_bits is not None:
            return None
        few = isinstance(m, int) and m <= _FEW_ROWS
        groups = depth_axes(self._reads(self.whole.b), size)
        for rest, scale in factors(self.weight) if few else ():
            group = size if is_one_group(groups) else size // groups[0]
            if changes_only_between(self._reads(scale), group, size):
                return rest, scale
        return None

    @cached_property
    def unit(self) -> DotUnit:
        """Unit that multiplies neighbours along k at a time, `MULTIPLY_ADD` without one. One vector
        of bf16 is multiplied in f32: it waits for memory, and denormals count."""
        if self.pieces is not None:
            return TILE_BF16
        roles = self.whole
        few = 1 if roles.b not in self.context.dequantised_in_place else _FEW_ROWS
        vectors = roles.a.dtype.is_float and isinstance(roles.m, int) and roles.m <= few
        if self.seed.op not in ("matmul", "grouped_matmul") or vectors:
            return MULTIPLY_ADD
        rows = roles.m
        if self.grouped and isinstance(rows, int) and isinstance(roles.batch[0], int):
            rows = ceildiv(rows, roles.batch[0])
        machine = self.context.machine
        unit = unit_of_product(roles.a.dtype, machine, rows, roles.n, *roles.k)
        # Few rows read B where it lies, which blocks cannot.
        few = isinstance(rows, int) and rows <= MOST_ROWS
        loose = not self.computes_b and not self.context.is_constant(roles.b)
        return machine.dot_unit(unit.b) if unit.on_blocks and few and loose else unit

    @property
    def pieces(self) -> Pieces | None:
        """Pieces that products of f32 are computed from, None if FMA computes them."""
        found = self._pieces_or_why
        return None if isinstance(found, str) else found

    @property
    def f32_products(self) -> str:
        """Method of computing f32 products, for reports; "" without any."""
        if not is_f32_product(self.seed, self.whole):
            return ""
        return product_text(self._pieces_or_why)

    @cached_property
    def _pieces_or_why(self) -> Pieces | str:
        if not is_f32_product(self.seed, self.whole):
            return "no product of f32"
        if self.computes_b:
            return "the weight is computed from smaller numbers"
        if self.grouped:
            return "grouped products have none"
        constant = self.context.is_constant(self.whole.b)
        return pieces_of(self.seed, self.whole, self.context.machine, constant)

    @property
    def likely_rows(self) -> Dim:
        """Likely rows of a group of a grouped product: twice its share of them."""
        if not self.grouped:
            return 0
        size, groups = self.seed.result.shape[0], self.seed.operands[1].shape[0]
        if isinstance(size, int) and isinstance(groups, int):
            return sym("rows", 0, max(1, -(-2 * size // groups)))
        return sym("rows", 0)

    def _reads(self, b: Value) -> list[IndexAccess]:
        """Return the accesses of an element of B, or of a value like it, at column n and at k."""
        roles = self.whole
        column, depth = sym(COLUMN, 0, roles.n - 1), sym(DEPTH, 0, roles.k[0] - 1)
        _, batch = fresh_axes(roles.batch, "e", {})
        return collect([(b, roles.b_index(batch, column, (depth,)))], self.context.stored, set())

    # ---- packing ---------------------------------------------------------------------------------

    @property
    def packable(self) -> Packable:
        """The properties that decide the layout of constant operands, and a way to pack them."""
        roles, group = self.roles(), self.unit.group
        depth = product(roles.k)
        if group > 1 and self.pieces is None:
            depth = ceildiv(depth, group)
        rows = self.likely_rows if self.grouped else roles.m
        dtype = accumulator(roles.a.dtype)
        sizes = ProductSizes(rows, roles.n, depth, dtype, shared_b=self.computes_b)
        return Packable(
            self.context, self.seed.origin, self.each, self.computes_b, self.unit, self.pieces,
            roles, sizes, self._pack_leaves,
        )  # fmt: skip

    def packing(self, candidate: Candidate) -> Layout:
        """Return the schedule's layout for constant operands."""
        return choose_layout(self.packable, self.context.machine, candidate)

    def pack(self, packing: Layout) -> PackedWeights:
        """Pack operands that are constant, and the same for every batch index."""
        return packing.pack(self.packable)

    def _pack_leaves(self, width: int) -> PackedWeights:
        if self.four_bits is not None:
            return self.four_bits.pack(self.context, width, self.seed.origin)
        instead, stored = dict[Value, Value](), dict[Value, Location]()
        for leaf in leaves_along(self._reads(self.whole.b)):
            view = leaf.panels(width, self.seed.origin)
            location = self.context.pack(view)
            assert location is not None, "leaves are constant"
            panels = Value("panels", view.type)
            stored[panels] = location
            instead[leaf.value] = leaf.read_back(panels, width)
        unrounded = frozenset[Value]()
        if self.unit.group == 1:
            instead[self.whole.b] = self.weight
            unrounded = made_of(self.weight, *(self.factors or ()))
        return PackedWeights(
            leaves=tuple(stored.values()), substitutes=Substitutes(instead, stored, unrounded)
        )

    # ---- the contraction -------------------------------------------------------------------------

    def spec(self, emitter: Emitter, packed: PackedWeights) -> Contraction:
        """Return the contraction, with packed operands read from their panels."""
        return _Operands(self, emitter).contraction(packed)


class _Operands:
    """A binding's operands as code."""

    def __init__(self, binding: ContractionBinding, emitter: Emitter) -> None:
        self.binding = binding
        self.e = emitter
        self.b: KernelBuilder = emitter.builder
        self.seed = binding.seed

    def contraction(self, packed: PackedWeights) -> Contraction:
        binding, context = self.binding, self.binding.context
        first = None
        if binding.grouped:
            first = self.b.fresh_symbol("first", 0, self.seed.result.shape[0])
        roles = binding.roles(0 if first is None else of_atom(first))
        a, b, k = self._loose(roles)
        if packed.a is not None:
            a = self._packed(packed.a, packed.packing)
        if packed.b is not None:
            b = self._packed(packed.b, packed.packing)
        b = replace(b, leaf=self._leaf(packed, product(k)), each=binding.each)
        pieces = tuple(self.e.param(each, "in") for each in packed.pieces)
        epilogue = Epilogue(self.e, context.group, context.targets)
        made = Contraction(
            roles.batch, roles.m, roles.n, k, a, b,
            accumulator(roles.a.dtype),
            lambda b, batch, m, n, lane, sums: epilogue.store(
                roles.result_index(batch, m, n), lane, sums
            ),
            MULTIPLY_ADD if binding.pieces else binding.unit,
            None if first is None else lambda b, batch: self._find_rows(b, batch, first),
            binding.likely_rows,
            has_chains(context.group.nodes, context.machine.isa),
        )  # fmt: skip
        if binding.four_bits is not None:
            return replace(made, four_bits=binding.four_bits.operand(self.e, packed))
        return made if binding.pieces is None else in_pieces(made, binding.pieces, pieces)

    def _leaf(self, packed: PackedWeights, depth: Dim) -> str | None:
        """Return the first of B's leaves with a number for each k in its panels, if any."""
        stored = packed.substitutes.stored.items()
        found = (location for panels, location in stored if panels.shape[1] == depth)
        location = next(found, None) if self.binding.unit.group == 1 else None
        return None if location is None else self.e.param(location, "in")

    def _packed(self, location: Location, packing: object) -> Operand:
        name = self.e.param(location, "in")
        return Operand(None, packed=name, layout=packing, half=is_half(location.dtype))

    def _loose(self, roles: Roles) -> tuple[Operand, Operand, Dims]:
        """Return both operands unpacked, and k in units of the elements that are multiplied."""
        binding = self.binding
        b = read_operand(self.e, roles.right)
        if binding.computes_b:
            b = self._computed(b, roles)
        a = read_operand(self.e, roles.left)
        if binding.unit.group == 1 or binding.pieces is not None:
            return a, b, roles.k
        *outer, k = roles.k
        unit = binding.unit
        shifted = roles.a.dtype == I8 and unit.a == U8
        if unit.on_tiles:
            a = replace(a, rows=self._aligned_rows(roles, mod(k, unit.group * WORDS) == 0))
        a = self._as_dot_operand(a, roles.a, roles.a_index, k, shifted, roles.a_within)
        b = self._as_dot_operand(b, roles.b, roles.b_index, k, shifted=False)
        return a, b, (*outer, ceildiv(k, unit.group))

    def _computed(self, b: Operand, roles: Roles) -> Operand:
        """Return B computed from panels."""
        b = replace(b, contiguous_along=Along.OUTER, direct=False, panelled=True)
        if self.binding.unit.group > 1 or self.binding.factors is None:
            return b
        rest, scale = (
            read_operand(self.e, replace(roles.right, value=value)).load
            for value in self.binding.factors
        )
        assert rest is not None and scale is not None
        return replace(b, factored=(rest, scale))

    def _as_dot_operand(
        self, operand: Operand, value: Value, at: Callable[[Dims, Dim, Dims], Index], k: Dim,
        shifted: bool, within: Callable[[Dims, Dim, Dims], Places] = everywhere,
    ) -> Operand:  # fmt: skip
        def load(bi: Dims, oi: Dim, ki: Dims, lane: Lane | None) -> Register:
            lane = lane and self._lane_within(lane, within(bi, oi, ki))
            return self.e.read(value, at(bi, oi, ki), lane, value.dtype)

        packed = DotOperand(value.dtype, k, load, self.binding.unit.word, shifted)
        whole = operand.contiguous_along == Along.K and mod(k, packed.size) == 0
        direct = operand.direct and whole and not converts(value, self.e.stored)
        near = operand.prefetch

        def prefetch(bi: Dims, oi: Dim, number: Dim) -> None:
            assert near is not None
            near(bi, oi, number * packed.size)

        return replace(operand, load=packed.loader, direct=direct, prefetch=near and prefetch)

    def _lane_within(self, lane: Lane, places: Places) -> Lane:
        """Return the lane, masked off as a whole where a position is outside."""
        conditions: list[Register] = []
        for position, size in places:
            if not provably_nonnegative(position):
                conditions.append(self.b.op("ge", self.b.index(position), 0))
            if not provably_nonnegative(size - 1 - position):
                conditions.append(self.b.op("lt", self.b.index(position), self.b.index(size)))
        if not conditions:
            return lane
        assert lane.mask is None, "there are whole words alone"
        all_hold = reduce(lambda x, y: self.b.op("and", x, y), conditions)
        left = self.b.op("select", all_hold, lane.count, 0, dtype=I64)
        return replace(lane, mask=self.b.op("lane_mask", left, lanes=lane.count))

    def _aligned_rows(self, roles: Roles, whole: bool) -> AlignedRows | None:
        """Return A's rows, if they are `whole` tile rows and begin on cache lines."""
        along, direct = contiguity(roles.left, self.e.stored)
        if not whole or not direct or along is not Along.K or converts(roles.a, self.e.stored):
            return None
        line = LINE_BYTES // roles.a.dtype.bytes
        *batch, row = fresh_axes((*roles.batch, roles.m), "x", {})[1]
        access, symbol = self._row_access(roles, tuple(batch), row), as_sym(row)
        stride, first = (line, access.expression) if symbol is None else (0, 0)
        if symbol is not None:
            stride, first = linear_part(access.expression, symbol.name) or (0, 0)
        if not isinstance(stride, int) or stride % line or not stride or mod(first, line) != 0:
            return None
        location = access.value and self.e.stored(access.value)
        assert location
        return AlignedRows(
            lambda: self.e.param(location, "in"),
            lambda batch, m: self._row_access(roles, batch, m).expression,
            stride,
        )

    def _row_access(self, roles: Roles, batch: Dims, m: Dim) -> IndexAccess:
        (access,) = collect([(roles.a, roles.a_index(batch, m, (0,)))], self.e.stored, set())
        return access

    # ---- grouped products ------------------------------------------------------------------------

    def _find_rows(self, b: KernelBuilder, batch: Dims, first: Sym) -> Found:
        ends, size = self.seed.operands[2], self.seed.result.shape[0]
        (group,), count = batch, ends.shape[0]
        most = b.index(size)
        end = b.op("min", self.e.read(ends, (group,), None, I64), most)
        before = self.e.read(ends, (maximum(group - 1, 0),), None, I64)
        start = b.op("select", b.op("eq", b.index(group), 0), 0, b.op("min", before, most))
        self.e.declare_status()
        ascends = b.op("and", b.op("le", start, end), b.op("ge", start, 0))
        fits = b.op("check", ascends, code=1)
        start = b.op("select", fits, start, 0)
        b.append(Let(first, start))
        found = b.let(b.op("select", fits, b.op("sub", end, start), 0), 0, size)
        last = b.op("eq", b.index(group), b.index(count - 1))
        rest = b.op("select", last, b.op("sub", most, start), b.index(found))
        return Found(found, b.let(rest, 0, size))


# ---- one operand --------------------------------------------------------------------------------


def read_operand(emitter: Emitter, matrix: Matrix) -> Operand:
    """Return an operand that is not packed."""
    value, at, dtype = matrix.value, matrix.at, accumulator(matrix.value.dtype)

    def load(_: KernelBuilder, bi: Dims, oi: Dim, ki: Dims, lane: Lane | None) -> Register:
        return emitter.read(value, at(bi, oi, ki), lane, dtype)

    along, direct = contiguity(matrix, emitter.stored)
    prefetch = _prefetching(emitter, matrix) if direct and along is Along.K else None
    half = direct and (is_half(value.dtype) or converts(value, emitter.stored))
    return Operand(load, along, direct, prefetch, half=half)


def _prefetching(emitter: Emitter, matrix: Matrix) -> PrefetchElement | None:
    """Return a prefetch of an operand that is read in place, if its rows follow one another."""

    def first(bi: Dims, oi: Dim) -> IndexAccess:
        at = matrix.at(bi, oi, (0,) * len(matrix.k))
        (access,) = collect([(matrix.value, at)], emitter.stored, set())
        return access

    def prefetch(bi: Dims, oi: Dim, number: Dim) -> None:
        access = first(bi, oi)
        assert access.value is not None
        location = emitter.stored(access.value)
        assert location is not None
        emitter.builder.prefetch(emitter.param(location, "in"), access.expression + number)

    _, index = fresh_axes((*matrix.batch, matrix.outer), "x", {})
    row = as_sym(index[-1])
    linear = row and linear_part(first(index[:-1], index[-1]).expression, row.name)
    return prefetch if linear and linear[0] == matrix.depth else None
