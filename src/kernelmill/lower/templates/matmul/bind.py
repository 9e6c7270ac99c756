"""Binds matmul, convolution and attention nodes to their templates.

Operands are read through the element emitter, so views, casts and whatever fusion inlined are part
of the kernel. Constant weights are packed into panels by a map kernel that runs once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

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
    substitute,
    sym,
)
from kernelmill.core.dtype import F32, F64, I8, I32, I64, DType
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.isa import MULTIPLY_ADD, DotUnit
from kernelmill.core.machine import Machine
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Let
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import pointwise
from kernelmill.lower.elements.axes import fresh_axes, used_axes
from kernelmill.lower.elements.domain import Access, collect
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index, ravel
from kernelmill.lower.emit.callbacks import ExpectElement
from kernelmill.lower.fusion.groups import Group
from kernelmill.lower.templates.attention.classes import (
    emit_attention_classes,
    plan_attention_classes,
)
from kernelmill.lower.templates.attention.spec import AttentionSpec
from kernelmill.lower.templates.attention.tiling import AttentionTiling, attention_tilings
from kernelmill.lower.templates.convolution.tiling import ConvolutionTiling
from kernelmill.lower.templates.matmul.classes import emit_classes, plan_classes
from kernelmill.lower.templates.matmul.roles import (
    Dims,
    Roles,
    convolution_roles,
    grouped_roles,
    matmul_roles,
    slides,
)
from kernelmill.lower.templates.matmul.schedule import Schedule
from kernelmill.lower.templates.matmul.spec import Contraction, Found, Operand, Window
from kernelmill.lower.templates.matmul.tiles import plan_contraction
from kernelmill.lower.templates.matmul.tiling import Tiling, tilings
from kernelmill.lower.weights.dequantise import (
    COLUMN,
    DEPTH,
    changes_only_between,
    depth_axes,
    is_one_group,
    leaves_along,
)
from kernelmill.lower.weights.panel_views import Rows, panel_view
from kernelmill.lower.weights.widen import factors, made_of, widened
from kernelmill.lower.weights.words import Words, unit_of_words


class Pack(Protocol):
    """Asks for a constant value to be stored once, which may be a copy of `rows`; None when it
    depends on what changes."""

    def __call__(self, view: Value, rows: Rows | None = None) -> Location | None: ...


_FEW_ROWS = 8
"""Up to so many rows a weight that is computed is multiplied as it is read, in f32."""


def accumulator(dtype: DType) -> DType:
    """The type in which products of this dtype are summed."""
    if dtype.is_float:
        return F64 if dtype == F64 else F32
    return I64 if dtype == I64 else I32


@dataclass(frozen=True)
class PanelWidths:
    """How wide panels of B and of A would be, were they constant; None: B is not packed at all."""

    b: int | None
    a: int


AnyTiling = Tiling | AttentionTiling | ConvolutionTiling


class ContractionEmitter:
    """Emits one contract or attention group into the emitter's kernel."""

    def __init__(
        self, emitter: Emitter, group: Group, targets: Mapping[Value, Location], machine: Machine,
        pack: Pack, tiling: AnyTiling | None = None,
    ) -> None:  # fmt: skip
        self.e = emitter
        self.b: KernelBuilder = emitter.builder
        self.group = group
        self.targets = targets
        self.machine = machine
        self.pack = pack
        self.tiling = tiling
        self.others: Sequence[AnyTiling] = ()
        assert group.seed is not None
        self.seed = group.seed
        self.packed_a: str | None = None
        self.packed_b: str | None = None
        self.packed_leaves: list[str] = []

    @cached_property
    def _whole(self) -> Roles:
        """The roles with k as the operator has it."""
        if self.seed.op == "grouped_matmul":
            return grouped_roles(self.seed, of_atom(self._first))
        return matmul_roles(self.seed) if self.seed.op == "matmul" else convolution_roles(self.seed)

    @cached_property
    def _first(self) -> Sym:
        """Of a grouped product: the first row of a group."""
        return self.b.fresh_symbol("first", 0, self.seed.result.shape[0])

    def _find_rows(self, b: KernelBuilder, batch: Dims) -> Found:
        """The rows of a group, between its end and the one before."""
        ends, size = self.seed.operands[2], self.seed.result.shape[0]
        (group,), count = batch, ends.shape[0]
        most = b.index(size)
        end = b.op("min", self._element(ends, (group,), None, I64), most)
        before = self._element(ends, (maximum(group - 1, 0),), None, I64)
        start = b.op("select", b.op("eq", b.index(group), 0), 0, b.op("min", before, most))
        self.e.declare_status()
        ascends = b.op("and", b.op("le", start, end), b.op("ge", start, 0))
        fits = b.op("check", ascends, code=1)
        start = b.op("select", fits, start, 0)
        b.append(Let(self._first, start))
        found = b.let(b.op("select", fits, b.op("sub", end, start), 0), 0, size)
        last = b.op("eq", b.index(group), b.index(count - 1))
        rest = b.op("select", last, b.op("sub", most, start), b.index(found))
        return Found(found, b.let(rest, 0, size))

    @cached_property
    def _roles(self) -> Roles:
        """The roles, with k cut into the groups of a weight that is computed."""
        roles = self._whole
        if not self._computes_b or self._unit.group > 1:
            return roles
        (size,) = roles.k
        assert isinstance(size, int)
        axes = depth_axes(self._reads(roles.b), size)
        if self._factors is not None and is_one_group(axes):
            axes = (1, *axes)
        return replace(
            roles,
            k=axes,
            a_index=lambda bi, mi, ki: roles.a_index(bi, mi, (ravel(ki, axes),)),
            b_index=lambda bi, ni, ki: roles.b_index(bi, ni, (ravel(ki, axes),)),
        )

    @cached_property
    def _computes_b(self) -> bool:
        """Whether B is a weight that is made of smaller numbers as it is read."""
        return self._whole.b in self.e.within

    def _reads(self, b: Value) -> list[Access]:
        """What an element of B, or of a value like it, is made of, at column n and at k."""
        roles = self._whole
        column, depth = sym(COLUMN, 0, roles.n - 1), sym(DEPTH, 0, roles.k[0] - 1)
        _, batch = fresh_axes(roles.batch, "e", {})
        return collect([(b, roles.b_index(batch, column, (depth,)))], self.e.stored, set())

    @cached_property
    def _weight(self) -> Value:
        """B as it is computed in f32, from bytes by way of i32."""
        return widened(self._whole.b, self.e.within)

    @cached_property
    def _factors(self) -> tuple[Value, Value] | None:
        """Of few rows: B without its scale, and the scale, the same for a group of k or for all."""
        m, (size,) = self._whole.m, self._whole.k
        assert isinstance(size, int)
        few = isinstance(m, int) and m <= _FEW_ROWS
        groups = depth_axes(self._reads(self._whole.b), size)
        for rest, scale in factors(self._weight) if few else ():
            group = size if is_one_group(groups) else size // groups[0]
            if changes_only_between(self._reads(scale), group, size):
                return rest, scale
        return None

    @cached_property
    def _loose(self) -> Contraction:
        """The contraction with no operand packed."""
        roles = self._roles
        b = self._window(self.seed)
        if b is None:
            b = self._operand(roles.b, roles.b_index, roles.batch, roles.n, roles.k)
        if self._computes_b:
            b = self._computed(b)
        a = self._operand(roles.a, roles.a_index, roles.batch, roles.m, roles.k)
        k = roles.k
        if self._unit.group > 1:
            a = self._in_words(a, roles.a, roles.a_index, k[0], shifted=roles.a.dtype == I8)
            b = self._in_words(b, roles.b, roles.b_index, k[0], shifted=False)
            k = (ceildiv(k[0], self._unit.group),)
        return Contraction(
            roles.batch, roles.m, roles.n, k,
            a,
            b,
            accumulator(roles.a.dtype),
            lambda b, batch, m, n, lane, sums: self._store(
                roles.result_index(batch, m, n), lane, sums
            ),
            self._unit,
            self._find_rows if self.seed.op == "grouped_matmul" else None,
            self._likely,
        )  # fmt: skip

    @property
    def _likely(self) -> Dim:
        """Rows of a group: twice its share of them."""
        if self.seed.op != "grouped_matmul":
            return 0
        size, groups = self.seed.result.shape[0], self.seed.operands[1].shape[0]
        if isinstance(size, int) and isinstance(groups, int):
            return sym("rows", 0, max(1, -(-2 * size // groups)))
        return sym("rows", 0)

    @property
    def _unit(self) -> DotUnit:
        """What multiplies neighbours along k at a time, if there are any.

        One vector of bf16 is multiplied in f32: memory is what that waits for, and denormals count.
        """
        roles = self._whole
        few = 1 if roles.b not in self.e.within else _FEW_ROWS
        vectors = roles.a.dtype.is_float and isinstance(roles.m, int) and roles.m <= few
        if self.seed.op not in ("matmul", "grouped_matmul") or vectors:
            return MULTIPLY_ADD
        return unit_of_words(roles.a.dtype, self.machine)

    def _computed(self, b: Operand) -> Operand:
        """B that is computed, from panels."""
        b = replace(b, contiguous_along="outer", direct=False, panelled=True)
        if self._unit.group > 1 or self._factors is None:
            return b
        roles = self._roles
        rest, scale = (
            self._operand(value, roles.b_index, roles.batch, roles.n, roles.k).load
            for value in self._factors
        )
        assert rest is not None and scale is not None
        return replace(b, factored=(rest, scale))

    def _in_words(
        self, operand: Operand, value: Value, at: Callable[[Dims, Dim, Dims], Index], k: Dim,
        shifted: bool,
    ) -> Operand:  # fmt: skip
        def load(bi: Dims, oi: Dim, ki: Dim, lane: Lane | None) -> Register:
            return self._element(value, at(bi, oi, (ki,)), lane, value.dtype)

        words = Words(value.dtype, k, load, shifted)
        whole = operand.contiguous_along == "k" and mod(k, words.size) == 0
        direct = operand.direct and whole and not _converts(value, self.e)
        near = operand.expect

        def expect(bi: Dims, oi: Dim, number: Dim) -> None:
            assert near is not None
            near(bi, oi, number * words.size)

        return replace(operand, load=words.loader, direct=direct, expect=near and expect)

    def panel_widths(self) -> PanelWidths:
        """The same for groups of equal structure."""
        spec = self._loose
        b = self._plan(replace(spec, b=replace(spec.b, packed="b")))
        a = self._plan(replace(spec, a=replace(spec.a, packed="a")))
        return PanelWidths(None if b.dot else b.width, a.rows)

    def _plan(self, spec: Contraction) -> Schedule:
        given = self.tiling if isinstance(self.tiling, Tiling) else Tiling()
        return plan_contraction(spec, self.machine, given)

    def pack_constants(self, widths: PanelWidths) -> None:
        """Have an operand that is constant, and the same for every batch index, packed once.

        To be called before `emit`.
        """
        roles = self._roles
        if self._computes_b:
            assert widths.b is not None
            self._pack_leaves(widths.b)
            return
        if widths.b is not None:
            self.packed_b = self._pack(roles.b, roles.b_index, roles.n, roles, widths.b)
        grouped = self.seed.op == "grouped_matmul"
        if self.packed_b is None and self._unit.group != 4 and not grouped:
            self.packed_a = self._pack(roles.a, roles.a_index, roles.m, roles, widths.a)

    @property
    def packed_key(self) -> tuple[str, ...]:
        """What packing adds to the kernel's signature."""
        return (self.packed_a or "", self.packed_b or "", *self.packed_leaves)

    def emit(self) -> Dim:
        """Emit body, tasks and scratch; returns the estimated work in ns.

        After that `others` are the tilings worth trying in place of the one it got.
        """
        if self.seed.op == "attention":
            return self._attention(self.seed)
        spec = self._loose
        if self.packed_b is not None:
            spec = replace(spec, b=Operand(None, packed=self.packed_b))
        if self._computes_b and self._unit.group == 1:
            self.e.instead[self._whole.b] = self._weight
            self.e.unrounded = made_of(self._weight, *(self._factors or ()))
        if self.packed_a is not None:
            spec = replace(spec, a=Operand(None, packed=self.packed_a))
        schedule = self._plan(spec)
        self.others = tilings(spec, schedule) if spec.rows is None else ()
        emit_classes(self.b, spec, plan_classes(spec, self.machine, schedule))
        return schedule.work

    def _operand(
        self, value: Value, at: Callable[[Dims, Dim, Dims], Index], batch: Dims, outer: Dim, k: Dims
    ) -> Operand:
        dtype = accumulator(value.dtype)

        def load(_: KernelBuilder, bi: Dims, oi: Dim, ki: Dims, lane: Lane | None) -> Register:
            return self._element(value, at(bi, oi, ki), lane, dtype)

        along, direct = self._contiguity(value, at, batch, outer, k)
        expect = self._expecting(value, at, batch, outer, k) if direct and along == "k" else None
        return Operand(load, along, direct, expect)

    def _expecting(
        self, value: Value, at: Callable[[Dims, Dim, Dims], Index], batch: Dims, outer: Dim, k: Dims
    ) -> ExpectElement | None:
        """Of an operand that is read where it lies, if its rows follow one another."""

        def first(bi: Dims, oi: Dim) -> Access:
            (access,) = collect([(value, at(bi, oi, (0,) * len(k)))], self.e.stored, set())
            return access

        def expect(bi: Dims, oi: Dim, number: Dim) -> None:
            access = first(bi, oi)
            assert access.value is not None
            location = self.e.stored(access.value)
            assert location is not None
            self.b.prefetch(self.e.param(location, "in"), access.expression + number)

        _, index = fresh_axes((*batch, outer), "x", {})
        row = as_sym(index[-1])
        linear = row and linear_part(first(index[:-1], index[-1]).expression, row.name)
        return expect if linear and linear[0] == product(k) else None

    def _window(self, node: Node) -> Operand | None:
        """B of a convolution that slides over its input; None for any other contraction."""
        if not slides(node):
            return None
        x, weight = node.operands
        outputs, channels, dtype = node.result.shape[2:], weight.shape[1], accumulator(x.dtype)
        line = len(outputs) == 1

        def load(
            _: KernelBuilder, bi: Dims, channel: Dim, position: tuple[Dim, Dim], lane: Lane
        ) -> Register:
            at = position[1:] if line else position
            return self._element(x, (bi[0], bi[1] * channels + channel, *at), lane, dtype)

        def both(name: str, missing: int) -> tuple[int, int]:
            values = tuple(int(size) for size in node.attrs[name])  # type: ignore[union-attr]
            return (missing, values[0]) if line else (values[0], values[1])

        sizes = (1, x.shape[2]) if line else (x.shape[2], x.shape[3])
        window = Window(
            load, sizes, (1, outputs[0]) if line else (outputs[0], outputs[1]),
            both("stride", 1), both("dilation", 1), both("padding", 0),
        )  # fmt: skip
        return Operand(None, "outer", direct=False, window=window)

    def _contiguity(
        self, value: Value, at: Callable[[Dims, Dim, Dims], Index], batch: Dims, outer: Dim, k: Dims
    ) -> tuple[str | None, bool]:
        """Along what neighbours are neighbours in memory, and whether a read is just a load."""
        extents: dict[str, Dim] = {}
        _, index = fresh_axes((*batch, outer, *k), "x", extents)
        position = len(batch)
        accesses = collect([(value, at(index[:position], index[position], index[position + 1 :]))],
                           self.e.stored, set())  # fmt: skip
        loads = [a.expression for a in accesses if a.kind == "load"]
        direct = len(loads) == len(accesses) == 1 and not computes(value, self.e)
        for name, axis in (("outer", index[position]), ("k", index[-1])):
            if loads and axis != 0 and all(steps_by_one(load, axis) for load in loads):
                return name, direct
        return None, direct

    def _pack(
        self,
        value: Value,
        at: Callable[[Dims, Dim, Dims], Index],
        outer: Dim,
        roles: Roles,
        width: int,
    ) -> str | None:
        sizes = (outer, *roles.k, *(roles.batch if self.seed.op == "grouped_matmul" else ()))
        if not all(isinstance(size, int) for size in sizes):
            return None
        assert self.group.seed is not None
        origin = self.group.seed.origin
        batch, k = roles.batch, roles.k
        each = self.seed.op == "grouped_matmul"
        view = panel_view(value, at, batch, outer, k, width, self._unit.group, origin, each)
        location = None if view is None else self.pack(*view)
        return None if location is None else self.e.param(location, "in")

    def _pack_leaves(self, width: int) -> None:
        for leaf in leaves_along(self._reads(self._whole.b)):
            view = leaf.panels(width, self.seed.origin)
            location = self.pack(view)
            assert location is not None, "leaves are constant"
            panels = Value("panels", view.type)
            self.e.panels[panels] = location
            self.e.instead[leaf.value] = leaf.read_back(panels, width)
            self.packed_leaves.append(self.e.param(location, "in"))

    # ---- attention -------------------------------------------------------------------------------

    def _attention(self, node: Node) -> Dim:
        query, key, value = node.operands[:3]
        heads, shared = query.shape[1], key.shape[1]
        group = heads // shared if shared != 0 else 1
        dtype = accumulator(query.dtype)
        mask = node.operands[3] if len(node.operands) > 3 else None
        scale, causal = node.attrs["scale"], node.attrs["causal"]
        depth, value_depth = query.shape[-1], value.shape[-1]
        assert isinstance(scale, float)
        if not (isinstance(group, int) and isinstance(depth, int) and isinstance(value_depth, int)):
            sizes = f"heads {heads} and {shared}, depths {depth} and {value_depth}"
            raise UnsupportedError(f"attention with symbolic {sizes} at {node.origin}")

        def reader(operand: Value, per_group: int, wanted: DType) -> Callable[..., Register]:
            def load(
                _: KernelBuilder, bi: Dims, row: Dim, column: Dim, lane: Lane | None
            ) -> Register:
                at = (bi[0], bi[1] // per_group, row, column)
                return self._element(operand, _broadcast(at, operand), lane, wanted)

            return load

        def along(operand: Value) -> str:
            at = lambda bi, row, ki: (*bi, row, *ki)  # noqa: E731 - an index in the operand's order
            found, _ = self._contiguity(
                operand, at, operand.shape[:2], operand.shape[2], operand.shape[3:]
            )
            return "n" if found == "outer" else "d"

        spec = AttentionSpec(
            query.shape[:2], query.shape[2], key.shape[2], depth, value_depth, scale, bool(causal),
            reader(query, 1, dtype), reader(key, group, dtype), reader(value, group, dtype),
            lambda b, bi, m, e, lane, register: self._store((*bi, m, e), lane, register),
            accumulate=dtype, group=group, key_contiguous_along=along(key),
        )  # fmt: skip
        if mask is not None:
            kind = "keep" if mask.dtype.name == "bool" else "add"
            wanted = mask.dtype if kind == "keep" else dtype
            spec = replace(spec, mask=reader(mask, 1, wanted), mask_kind=kind)
        given = self.tiling if isinstance(self.tiling, AttentionTiling) else None
        classes = plan_attention_classes(spec, self.machine, given)
        self.others = attention_tilings(spec, classes[-1].schedule)
        emit_attention_classes(self.b, spec, classes)
        return classes[-1].schedule.work

    # ---- elements --------------------------------------------------------------------------------

    def _element(self, value: Value, index: Index, lane: Lane | None, wanted: DType) -> Register:
        scope = self.e.block() if lane is None else self.e.lanes(lane)
        with scope:
            register = self.e.element(value, index)
        if register.type.dtype != wanted:
            register = self.b.op("cast", register, dtype=wanted)
        if lane is not None and register.type.lanes == 1:
            register = self.b.op("splat", register, dtype=wanted, lanes=lane.count)
        return register

    def _store(self, index: Index, lane: Lane | None, register: Register) -> None:
        """The epilogue: the group's members at an element of the seed's result, and the stores."""
        node = self.group.seed
        assert node is not None
        index = tuple(0 if s == 1 else i for s, i in zip(node.result.shape, index, strict=True))
        dtype = node.result.dtype
        if lane is not None and lane.symbol.name not in used_axes(index):
            # A single column: only the first lane holds a sum.
            lane, register = None, self.b.op("extract", register, 0)
        with self.e.block() if lane is None else self.e.lanes(lane):
            if register.type.dtype != dtype.compute:
                register = self.b.op("cast", register, dtype=dtype.compute)
            register = pointwise.round_to(self.b, register, dtype)
            # Members read each other's own element, which a reshape may write in another way.
            self.e.bind_everywhere(node.result, register)
            at = self.roots_at(index)
            registers = [self.e.element(value, i) for value, i in at]
            for (value, i), element in zip(at, registers, strict=True):
                self.e.store(self.targets[value], i, element)

    def roots_at(self, index: Index) -> list[tuple[Value, Index]]:
        """What the group stores, with the index of each for an element of the seed's result."""
        axes = iter(self.group.outer)
        env = {
            next(axes).name: position
            for size, position in zip(self.seed.result.shape, index, strict=True)
            if size != 1
        }
        return [
            (value, tuple(substitute(i, env) for i in own))
            for value, own in self.group.roots.items()
        ]


def computes(value: Value, emitter: Emitter) -> bool:
    """Whether reading an element does more than load it (and widen a half type)."""
    while emitter.stored(value) is None:
        node = value.node
        if node is None or (not OPS[node.op].transparent and node.op != "cast"):
            return True
        value = node.operands[0]
    return False


def _converts(value: Value, emitter: Emitter) -> bool:
    """Whether a cast stands between the value and memory."""
    while emitter.stored(value) is None and value.node is not None:
        if value.node.op == "cast":
            return True
        value = value.node.operands[0]
    return False


def steps_by_one(expression: Dim, axis: Dim) -> bool:
    """Whether the next place along an axis is the next one in memory."""
    symbol = as_sym(axis)
    linear = None if symbol is None else linear_part(expression, symbol.name)
    return linear is not None and linear[0] == 1


def _broadcast(index: Index, value: Value) -> Index:
    kept = index[len(index) - len(value.shape) :]
    return tuple(0 if size == 1 else i for i, size in zip(kept, value.shape, strict=True))
