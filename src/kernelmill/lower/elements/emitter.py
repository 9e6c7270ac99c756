"""Emits single elements (or vectors of them) of graph values as kernel IR registers.

The emitter walks from a value to stored values: pointwise operators become register operations,
views become index arithmetic, stored values become loads. A template calls `element(value, index)`.
Symbols of the index that were opened with `lanes` stand for vector lanes, all others are scalars of
the surrounding loops.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import field, replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import (
    Atom,
    Dim,
    Expr,
    Op,
    Sym,
    linear_part,
    of_atom,
    provably_nonnegative,
    symbols,
    symbols_of,
)  # fmt: skip
from kernelmill.core.dtype import I64, DType
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.ir import Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, STATUS
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import pointwise, views
from kernelmill.lower.elements.axes import in_range
from kernelmill.lower.elements.lane import Lane, repeat_lanes, repeated_lanes
from kernelmill.lower.elements.views import Index


@dataclass(frozen=True)
class Location:
    """The memory of a value: a plan buffer, the strides of its dims and the first element."""

    buffer: int
    dtype: DType
    strides: tuple[Dim, ...]
    elements: Dim
    offset: Dim = 0


@dataclass(frozen=True)
class ScratchLocation:
    """A value kept in the running thread's scratch, in register form (half types as f32)."""

    dtype: DType
    strides: tuple[Dim, ...]
    offset: Dim = 0


@dataclass(frozen=True)
class Substitutes:
    """Values that a kernel of packed weights reads otherwise than the graph says.

    instead    read in place of a value, having the same elements
    stored     where values are stored that only this kernel knows
    unrounded  computed values that are not rounded to their half type
    """

    instead: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    stored: Mapping[Value, Location] = field(default_factory=dict[Value, Location])
    unrounded: AbstractSet[Value] = frozenset()


Known = dict[tuple[Value, Index | None], Register]
"""Registers by what they hold: an element, or None for the only one of a value that is read."""


_NO_SUBSTITUTES = Substitutes()


class Emitter:
    """One for each kernel. `stored` says where a value lives, or None when it is computed here."""

    def __init__(
        self,
        builder: KernelBuilder,
        stored: Callable[[Value], Location | None],
        substitutes: Substitutes = _NO_SUBSTITUTES,
    ) -> None:
        self.builder = builder
        self.scratch: dict[Value, ScratchLocation] = {}
        self._substitutes = substitutes
        self.buffers: list[int] = []
        self.stored = stored
        self._params: dict[int, str] = {}
        self._layers: list[Known] = [{}]
        self._positions: list[dict[Atom, Register]] = [{}]
        """In the same layers, divisions in index expressions that differ between lanes."""
        self._vectors: dict[str, Register | None] = {}
        self._lane: Lane | None = None
        self._mask: Register | None = None

    # ---- scopes ------------------------------------------------------------------------------

    @contextmanager
    def block(self, known: Known | None = None) -> Generator[None]:
        """Open a block, whose registers are forgotten after it: use one for each loop body.
        Registers for later blocks of the same loop go into `known`."""
        self._layers.append({} if known is None else known)
        self._positions.append({})
        try:
            yield
        finally:
            self._layers.pop()
            self._positions.pop()

    @contextmanager
    def lanes(self, lane: Lane, known: Known | None = None) -> Generator[None]:
        """Inside, the lane's symbol stands for a vector; implies `block`."""
        saved = self._lane, self._mask, dict(self._vectors)
        self._lane, self._mask = lane, lane.mask
        self._vectors = {lane.symbol.name: None}
        try:
            with self.block(known):
                yield
        finally:
            self._lane, self._mask, self._vectors = saved

    def read(
        self, value: Value, index: Index, lane: Lane | None, dtype: DType | None = None
    ) -> Register:
        """Read an element in a block of its own, with a lane the vector along its symbol.

        With a dtype it is of that type, and with a lane it is a vector though all lanes are alike.
        """
        with self.block() if lane is None else self.lanes(lane):
            register = self.element(value, index)
        if dtype is None:
            return register
        register = self.builder.cast(register, dtype)
        if lane is not None and register.type.lanes == 1:
            register = self.builder.op("splat", register, dtype=dtype, lanes=lane.count)
        return register

    def write(self, location: Location, index: Index, lane: Lane | None, value: Register) -> None:
        """Store one element, or the vector along the lane's symbol, in a block of its own."""
        with self.block() if lane is None else self.lanes(lane):
            self.store(location, index, value)

    def bind(self, value: Value, index: Index, register: Register) -> None:
        """Make known a register that already holds this element."""
        self._layers[-1][value, index] = register

    def bind_everywhere(self, value: Value, register: Register) -> None:
        """Make known the register of the only element of `value` that is read, however its index
        is written."""
        self._layers[-1][value, None] = register

    # ---- memory ------------------------------------------------------------------------------

    def param(self, location: Location, access: str) -> str:
        """Return a plan buffer's name in the kernel, declaring it; `access` is "in" or "out"."""
        name = self._params.get(location.buffer)
        if name is None:
            name = self._params[location.buffer] = f"b{len(self.buffers)}"
            self.buffers.append(location.buffer)
            self.builder.buffer(name, location.dtype, location.elements, access)
            return name
        declared = self.builder.kernel.buffers
        position = next(i for i, buffer in enumerate(declared) if buffer.name == name)
        if declared[position].access not in (access, "inout"):
            declared[position] = replace(declared[position], access="inout")
        return name

    def store(self, location: Location, index: Index, register: Register) -> None:
        """Write one element (or vector) of a value in register form."""
        buffer = self.param(location, "out")
        if location.elements == 0:
            return  # an empty tensor's dims need not have an address each
        value = self.builder.cast(register, location.dtype)
        self._store(buffer, views.address(index, location.strides, location.offset), value)

    def store_scratch(self, location: ScratchLocation, index: Index, register: Register) -> None:
        """Keep an element in scratch for later loops of the same task."""
        address = views.address(index, location.strides, location.offset)
        self._store(SCRATCH, address, register)

    def prefetch(self, location: Location, address: Dim, access: str = "in") -> None:
        """Prefetch the line of a stored value's element, of the first of lanes that step by one.
        `access` is the access to come."""
        if self._shape_of_access(address)[0] == "linear":
            address = self._without_lane(address)
        self.builder.prefetch(self.param(location, access), address)

    def _store(self, buffer: str, address: Dim, value: Register) -> None:
        kind, coefficient = self._shape_of_access(address)
        b = self.builder
        if kind == "uniform":
            if value.type.lanes != 1:
                raise AssertionError("a vector is stored at a uniform address")
            b.store(buffer, address, value)
            return
        assert self._lane is not None
        if value.type.lanes == 1:
            value = b.op("splat", value, dtype=value.type.dtype, lanes=self._lane.count)
        if kind == "linear":
            base = self._without_lane(address)
            b.store(buffer, base, value, mask=self._mask, stride=coefficient)
        else:
            b.scatter(buffer, 0, self.vector(address), value, mask=self._mask)

    def _shape_of_access(self, address: Dim) -> tuple[str, Dim]:
        used = self._vectors.keys() & symbols(address).keys() if self._vectors else ()
        if not used:
            return "uniform", 0
        if self._lane is not None and used == {self._lane.symbol.name}:
            linear = linear_part(address, self._lane.symbol.name)
            if linear is not None:
                return "linear", linear[0]
        return "general", 0

    def _without_lane(self, address: Dim) -> Dim:
        assert self._lane is not None
        linear = linear_part(address, self._lane.symbol.name)
        assert linear is not None
        return linear[1]

    def _load(self, buffer: str, address: Dim, dtype: DType, exists: bool) -> Register:
        """Read an element. One that all lanes share may not exist when the mask leaves all out."""
        kind, coefficient = self._shape_of_access(address)
        b = self.builder
        if kind == "uniform":
            mask = None if exists or self._mask is None else self._any_lane(self._mask)
            return b.load(buffer, address, dtype, mask=mask)
        assert self._lane is not None
        if kind == "linear":
            base = self._without_lane(address)
            return b.load(buffer, base, dtype, self._lane.count, self._mask, coefficient)
        repeated = None if self._mask is not None else repeated_lanes(address, self._lane)
        if repeated is not None:
            base, step, lanes = repeated
            return repeat_lanes(
                b, b.load(buffer, base, dtype, lanes, stride=step), self._lane.count
            )
        return b.gather(buffer, 0, self.vector(address), dtype, self._mask)

    # ---- elements ----------------------------------------------------------------------------

    def element(self, value: Value, index: Index) -> Register:
        """Return the element in register form: a vector when the index has a lane symbol."""
        for layer in reversed(self._layers):
            found = layer.get((value, index)) or layer.get((value, None))
            if found is not None:
                return found
        register = self._compute(value, index)
        self._layers[-1][value, index] = register
        return register

    def _compute(self, value: Value, index: Index) -> Register:
        kept = self.scratch.get(value)
        if kept is not None:
            address = views.address(index, kept.strides, kept.offset)
            return self._load(SCRATCH, address, kept.dtype.compute, exists=True)
        substitute = self._substitutes.instead.get(value)
        if substitute is not None:
            return self.element(substitute, index)
        location = self._substitutes.stored.get(value) or self.stored(value)
        if location is not None:
            address = views.address(index, location.strides, location.offset)
            exists = in_range(index, value.shape)
            raw = self._load(self.param(location, "in"), address, location.dtype, exists)
            return self.builder.cast(raw, location.dtype.compute)
        node = value.node
        if node is None:
            raise UnsupportedError(f"{value} is neither stored nor computed")
        return self._compute_node(node, index)

    def _compute_node(self, node: Node, index: Index) -> Register:
        definition = OPS[node.op]
        if definition.kind is OpKind.POINTWISE:
            args = [self.element(operand, index) for operand in node.operands]
            rounded = node.result not in self._substitutes.unrounded
            return pointwise.apply(self.builder, node, args, rounded)
        if definition.transparent:
            return self._view(node, index)
        if definition.kind is OpKind.SOURCE:
            return self._source(node, index)
        if definition.kind is OpKind.GATHER:
            return self._gathered(node, index)
        raise UnsupportedError(f"{node.op} cannot be computed element by element")

    def _source(self, node: Node, index: Index) -> Register:
        if node.op == "full":
            dtype = node.result.dtype
            return pointwise.constant(self.builder, node.attrs["value"], dtype)
        if node.op == "dim_value":
            value = node.attrs["value"]
            assert isinstance(value, int | Expr)
            return self.builder.index(value)
        dim = node.attrs["dim"]
        assert isinstance(dim, int)
        return self.vector(index[dim])

    def _view(self, node: Node, index: Index) -> Register:
        # A concatenation's pieces cover everything: it needs no fill.
        filler = views.fill(node)
        fill = pointwise.constant(self.builder, 0 if filler is None else filler, node.result.dtype)
        found = views.sources(node, index)
        if len(found) > 1 and not found[-1].conditions:
            # What is written over is computed first: all branches then know it.
            *found, rest = found
            fill = self.element(rest.operand, rest.index)
        return self._choose(found, fill)

    def _choose(self, found: Sequence[views.ViewSource], fill: Register) -> Register:
        """Return the element of the first source whose conditions hold, else `fill`."""
        if not found:
            return fill
        source = found[0]
        alike = [c for c in source.conditions if not self._varies(c)]
        if alike:
            rest = replace(source, conditions=tuple(filter(self._varies, source.conditions)))
            return self._branch(
                self.conditions(alike),
                lambda: self._choose((rest, *found[1:]), fill),
                lambda: self._choose(found[1:], fill),
            )
        if not source.conditions:
            return self.element(source.operand, source.index)
        test = self.conditions(source.conditions)
        with self._guard(test):
            value = self.element(source.operand, source.index)
        return self.builder.op("select", test, value, self._choose(found[1:], fill))

    def _branch(
        self, test: Register, then: Callable[[], Register], otherwise: Callable[[], Register]
    ) -> Register:
        b = self.builder
        with b.when(test) as statement, self.block():
            first = then()
        with b.otherwise(statement), self.block():
            second = otherwise()
            if second.type.lanes < first.type.lanes:
                second = b.op("splat", second, dtype=second.type.dtype, lanes=first.type.lanes)
        if first.type.lanes < second.type.lanes:
            with b.reopen(statement.then):
                first = b.op("splat", first, dtype=first.type.dtype, lanes=second.type.lanes)
        result = b.fresh(first.type.dtype, first.type.lanes)
        statement.results = (result,)
        statement.then_yields, statement.otherwise_yields = (first,), (second,)
        return result

    @contextmanager
    def _guard(self, test: Register) -> Generator[None]:
        """Restrict accesses inside to lanes where `test` holds."""
        saved = self._mask
        self._mask = test if saved is None else self.builder.op("and", saved, test)
        try:
            with self.block():
                yield
        finally:
            self._mask = saved

    def _any_lane(self, mask: Register) -> Register:
        return mask if mask.type.lanes == 1 else self.builder.op("reduce_or", mask)

    def conditions(self, conditions: Sequence[Dim]) -> Register:
        """Emit a bool register that is true where all of these dims are >= 0."""
        result: Register | None = None
        for condition in conditions:
            test = self.builder.op("ge", self.vector(condition), 0)
            result = test if result is None else self.builder.op("and", result, test)
        assert result is not None
        return result

    # ---- index and gather --------------------------------------------------------------------

    def _gathered(self, node: Node, index: Index) -> Register:
        """Return the looked-up element; 0 where there is none because the operand is empty."""
        source = node.operands[0]
        at = self._looked_up(node, index)
        empty = [size for size in source.shape if not provably_nonnegative(size - 1)]
        if not empty:
            return self.element(source, at)
        nothing = pointwise.constant(self.builder, 0, node.result.dtype)
        if 0 in empty:
            return nothing
        test = self.conditions([size - 1 for size in empty])
        return self._branch(test, lambda: self.element(source, at), lambda: nothing)

    def _looked_up(self, node: Node, index: Index) -> Index:
        source = node.operands[0]
        if node.op == "gather":
            dim = node.attrs["dim"]
            assert isinstance(dim, int)
            position = self._position(node, node.operands[1], index, source.shape[dim])
            return (*index[:dim], position, *index[dim + 1 :])
        dims, at = node.attrs["dims"], node.attrs["at"]
        assert isinstance(dims, tuple) and isinstance(at, int)
        inner_rank = len(node.operands[1].shape)
        inner = index[at : at + inner_rank]
        kept = list(index[:at] + index[at + inner_rank :])
        chosen = {
            dim: self._position(node, operand, inner, source.shape[dim])  # type: ignore[index]
            for dim, operand in zip(dims, node.operands[1:], strict=True)
        }
        return tuple(chosen[d] if d in chosen else kept.pop(0) for d in range(len(source.shape)))

    def _position(self, node: Node, indices: Value, index: Index, size: Dim) -> Expr:
        """Return an element of an index tensor as an index: wrapped, checked, in range."""
        b = self.builder
        wrapped = self.element(indices, index)
        extent = b.index(size)
        if not node.attrs.get("unsigned"):
            from_end = b.op("add", wrapped, extent)
            wrapped = b.op("select", b.op("lt", wrapped, 0), from_end, wrapped)
        valid = b.op("and", b.op("ge", wrapped, 0), b.op("lt", wrapped, extent))
        checked = valid
        if self._mask is not None:
            needed = self._mask if wrapped.type.lanes > 1 else self._any_lane(self._mask)
            checked = b.op("or", valid, b.op("not", needed))
        self.declare_status()
        b.op("check", checked, code=1)
        safe = b.op("select", valid, wrapped, 0)
        if safe.type.lanes == 1:
            return b.let(safe, 0, size - 1)  # type: ignore[return-value]
        symbol = b.fresh_symbol("p", 0, size - 1)
        self._vectors[symbol.name] = safe
        return of_atom(symbol)

    def declare_status(self) -> None:
        """Give the kernel the status word, which `check` marks."""
        if -1 not in self._params:
            self._params[-1] = STATUS
            self.buffers.append(-1)
            self.builder.buffer(STATUS, I64, 1, "inout")

    # ---- index expressions as registers ------------------------------------------------------

    def _varies(self, dim: Dim) -> bool:
        """Return whether an index expression differs between lanes."""
        return bool(self._vectors and self._vectors.keys() & symbols(dim).keys())

    def vector(self, dim: Dim) -> Register:
        """Return an index expression as an i64 register, a vector where it uses lanes."""
        if not self._varies(dim):
            return self.builder.index(dim)
        assert isinstance(dim, Expr)
        b = self.builder
        scalar: Dim = 0
        total: Register | None = None
        for monomial, c in dim.terms:
            factor: Dim = c
            part: Register | None = None
            for atom in monomial:
                if not self._vectors.keys() & symbols_of(atom).keys():
                    factor = factor * of_atom(atom)
                    continue
                register = self._vector_atom(atom)
                part = register if part is None else b.op("mul", part, register)
            if part is None:
                scalar = scalar + factor
                continue
            if factor != 1:
                part = b.op("mul", part, factor if isinstance(factor, int) else b.index(factor))
            total = part if total is None else b.op("add", total, part)
        assert total is not None
        return total if scalar == 0 else b.op("add", total, b.index(scalar))

    def _vector_atom(self, atom: Atom) -> Register:
        for layer in reversed(self._positions):
            if atom in layer:
                return layer[atom]
        register = self._new_vector(atom)
        if isinstance(atom, Op):
            self._positions[-1][atom] = register
        return register

    def _new_vector(self, atom: Atom) -> Register:
        b = self.builder
        if isinstance(atom, Sym):
            register = self._vectors[atom.name]
            if register is not None:
                return register
            assert self._lane is not None
            return b.op("iota", dtype=I64, lanes=self._lane.count)
        assert isinstance(atom, Op)
        left, right = self.vector(atom.a), self.vector(atom.b)
        if atom.kind in ("min", "max"):
            return b.op(atom.kind, left, right)
        if isinstance(atom.b, int) and atom.b & (atom.b - 1) == 0:
            # Arithmetic shift and mask round down for negative numbers too.
            if atom.kind == "mod":
                return b.op("and", left, atom.b - 1)
            return b.op("shr", left, atom.b.bit_length() - 1)
        if not provably_nonnegative(atom.a):
            return pointwise.floor_integer(b, atom.kind, left, right)
        return b.op("rem" if atom.kind == "mod" else "div", left, right)
