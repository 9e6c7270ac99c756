"""The work of one kernel as a small graph of its inputs.

Its operands are stored values, with the strides of the views between. The graph is built twice:
with the given sizes, and *generalised*, with a symbol for each size, so that one kernel is enough
for all sizes. The symbols' values are kept with it.

Sizes of 0 and 1 stay constant (they change broadcasting and contiguity), and so do those of
convolution windows. Pointwise operators get as few dims as their strides allow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Sym, bounds, evaluate, of_atom, substitute
from kernelmill.core.dtype import InputRole
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Node, OpKind, Value, row_major
from kernelmill.graph.ops import OPS
from kernelmill.graph.typing import TypingError
from kernelmill.lower.driver.kernels import kernel_type
from kernelmill.lower.driver.placement import Placed, Work
from kernelmill.lower.elements.axes import is_view
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.strided import Stored, StridedView, span, strided_view
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.fusion.prepacked import is_symbolic

Form = TypeVar("Form", bound="_Exact")


@dataclass(frozen=True)
class Operator:
    """A kernel's work by itself.

    graph    with the sizes of its program, where those are numbers; else None
    general  for all sizes, where the operator has such a form; else None
    values   what the symbols of `general` are in the program
    shape    of what it reads first, or of its result when it reads nothing
    origin   the user's line
    inputs   the program's buffer for each input of a graph, in order; dim inputs are left out
    outputs  the program's buffer for each result
    """

    type: str
    graph: Graph | None
    general: Graph | None
    values: Mapping[str, Dim]
    shape: tuple[Dim, ...]
    origin: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Extracted:
    """A program of one operator after the other: its work, and each that has a form by itself."""

    placed: Placed
    operators: Mapping[Work, Operator]


def extract(placed: Placed) -> Extracted:
    """Extract the operators of a program in which every one is a group of its own."""
    found: dict[Work, Operator] = {}
    for step in placed.steps:
        operator = _isolate(step, placed) if isinstance(step, Work) else None
        if isinstance(step, Work) and operator is not None:
            found[step] = operator
    return Extracted(placed, found)


def _isolate(work: Work, placed: Placed) -> Operator | None:
    """Return a group's work by itself; None without such a form: kernels that write into what they
    read, or into a piece of a buffer. Parameters are distinct from other arguments, since kernels
    of one shape may pack them once."""
    if not _writes_apart(work):
        return None
    exact = _attempt(_Exact(work.targets, _outside(work, placed), placed.is_parameter))
    if exact is None:
        return None
    general = generalise(work, placed)
    if general is not None and general.inputs != tuple(exact.buffers):
        general = None
    operator = general or _operator(work, exact)
    fixed = not exact.builder.graph.symbols
    return replace(operator, graph=exact.builder.graph) if fixed else operator


def generalise(work: Work, placed: Placed) -> Operator | None:
    """Return a group's work by itself, for all sizes; None if it has no such form."""
    if not _writes_apart(work):
        return None
    general = _attempt(_General(work.targets, _outside(work, placed)))
    if general is None:
        return None
    graph, values = general.builder.graph, general.values
    return replace(_operator(work, general), general=graph, values=values)


def _writes_apart(work: Work) -> bool:
    """Check that the work fills whole buffers, and none that it reads."""
    return (
        work.group.kind not in (GroupKind.SCATTER, GroupKind.ATEN)
        and not any(node.attrs.get("inplace") for node in work.nodes)
        and all(location.offset == 0 for location in work.targets.values())
    )


def _outside(work: Work, placed: Placed) -> Stored:
    """Return a lookup of the memory of values that the work reads and does not compute."""
    own = {*work.group.internal, *work.group.roots}
    return lambda value: None if value in own else placed.stored(value)


def _operator(work: Work, built: _Exact) -> Operator:
    nodes, targets = work.nodes, work.targets
    return Operator(
        kernel_type(nodes), None, None, {}, _first_shape(nodes, targets),
        next((node.origin for node in nodes if node.origin), ""),
        tuple(built.buffers), tuple(location.buffer for location in targets.values()),
    )  # fmt: skip


def _first_shape(nodes: Sequence[Node], targets: Iterable[Value]) -> tuple[Dim, ...]:
    computing = (n for n in nodes if n.operands and not OPS[n.op].transparent)
    first = next(computing, None)
    return next(iter(targets)).shape if first is None else first.operands[0].shape


class _NoForm(Exception):
    """This operator cannot be written in the form that is being built."""


def _attempt(isolation: Form) -> Form | None:
    try:
        isolation.run()
    except (_NoForm, TypingError):
        return None
    return isolation


class _Exact:
    """Builder of the graph with the sizes of the program."""

    def __init__(
        self,
        targets: Mapping[Value, Location],
        stored: Stored,
        is_constant: Callable[[int], bool],
    ) -> None:
        self.targets = targets
        self.stored = stored
        self.is_constant = is_constant
        self.builder = GraphBuilder("operator")
        self.buffers: list[int] = []
        self.done: dict[Value, Value] = {}
        self.inputs: dict[Hashable, Value] = {}
        self.roles: dict[Value, tuple[Hashable, ...]] = {}

    def run(self) -> None:
        coalesced = self._coalesced()
        if coalesced is not None:
            self.builder.graph.results.append(coalesced)
            return
        for root, location in self.targets.items():
            result = self._root(root, location)
            if not self._same(root.shape, result.shape):
                raise _NoForm
            self.builder.graph.results.append(result)

    # ---- sizes -----------------------------------------------------------------------------------

    def size(self, dim: Dim, role: Hashable) -> Dim:
        """Return a size in this form. Sizes of one role and one value are one symbol, if any."""
        return dim

    def _same(self, shape: Sequence[Dim], built: Sequence[Dim]) -> bool:
        return tuple(shape) == tuple(built)

    def _shape(self, value: Value) -> tuple[Dim, ...]:
        roles = self.roles.get(value, (None,) * len(value.shape))
        return tuple(map(self.size, value.shape, roles))

    def strides(
        self, shape: Sequence[Dim], strides: Sequence[Dim], built: Sequence[Dim]
    ) -> tuple[Dim, ...]:
        """Strides as this form has them: products of sizes where they are, else sizes themselves.

        `built` is the shape in this form.
        """
        order = [i for i in reversed(range(len(shape))) if shape[i] != 1]
        order = _sorted(order, strides)
        found = list(row_major(built))
        expected: Dim = 1
        expression: Dim = 1
        for i in order:
            if strides[i] == expected:
                found[i] = expression
            else:
                found[i] = self.size(strides[i], "stride")
            if strides[i] != 0:
                expected, expression = strides[i] * shape[i], found[i] * built[i]
        return tuple(found)

    # ---- values ----------------------------------------------------------------------------------

    def _root(self, root: Value, location: Location) -> Value:
        node = root.node
        assert node is not None
        place = strided_view(root, self.stored) if is_view(root) else None
        if place is not None:
            value = self._input(root.shape, self._shape(root), place)
        elif node.op == "layout":
            value = self._value(node.operands[0])
        else:
            value = self._computed(root)
        strides = self.strides(root.shape, location.strides, value.shape)
        if place is None and node.op != "layout" and strides == row_major(value.shape):
            return value
        return self.builder.emit("layout", value, strides=strides)

    def _value(self, value: Value) -> Value:
        if value not in self.done:
            place = strided_view(value, self.stored)
            if place is None:
                self.done[value] = self._computed(value)
            else:
                self.done[value] = self._input(value.shape, self._shape(value), place)
        return self.done[value]

    def _computed(self, value: Value) -> Value:
        node = value.node
        if node is None:
            raise _NoForm
        self._set_roles(node)
        operands = [self._value(operand) for operand in node.operands]
        results = self.builder.emit_many(node.op, *operands, **self._attrs(node))
        if node.op == "reshape" and results[0].type.elements != operands[0].type.elements:
            raise _NoForm
        self.done.update(zip(node.results, results, strict=True))
        return self.done[value]

    def _attrs(self, node: Node) -> dict[str, Any]:
        if node.op == "as_strided" and self._generalises:
            raise _NoForm
        attrs: dict[str, Any] = dict(node.attrs)
        for name, attr in attrs.items():
            if name == "shape":
                attrs[name] = self._shape(node.result)
            elif isinstance(attr, Expr):
                attrs[name] = self.size(attr, None)
            elif self._generalises and isinstance(attr, tuple) and is_symbolic(attr):
                raise _NoForm
        return attrs

    _generalises = False

    def _set_roles(self, node: Node) -> None:
        """Make sizes of operands that must be equal share a role."""

    # ---- what is read ----------------------------------------------------------------------------

    def _input(self, shape: Sequence[Dim], built: tuple[Dim, ...], place: StridedView) -> Value:
        strides = self.strides(shape, place.strides, built)
        offset = self.size(place.offset, "offset")
        key = (place.location.buffer, place.location.dtype, built, strides, offset)
        known = self.inputs.get(key)
        if known is not None:
            return known
        kept = None if strides == row_major(built) else strides
        name, dtype = f"x{len(self.buffers)}", place.location.dtype
        if offset == 0:
            constant = self.is_constant(place.location.buffer)
            role = InputRole.PARAM if constant else InputRole.USER
            value = self.builder.input(name, dtype, built, kept, role)
        else:
            whole = self.builder.input(name, dtype, (offset + span(built, strides),))
            value = self.builder.emit(
                "as_strided", whole, shape=built, strides=strides, offset=offset
            )
        self.buffers.append(place.location.buffer)
        self.inputs[key] = value
        return value

    # ---- pointwise operators ---------------------------------------------------------------------

    def _coalesced(self) -> Value | None:
        """Coalesce the dims of a pointwise operator where possible; None for other operators."""
        (root, target), *others = self.targets.items()
        node = root.node
        if others or node is None or OPS[node.op].kind is not OpKind.POINTWISE:
            return None
        places: dict[Value, StridedView] = {}
        for operand in node.operands:
            place = strided_view(operand, self.stored)
            if place is not None:
                places[operand] = place
            elif operand.node is None or operand.node.op != "full":
                return None
        order = _by_memory(root.shape, target.strides)
        shape, kept = _merge(root.shape, order, [target.strides, *_strides_of(places)])
        built = tuple(self.size(size, axis) for axis, size in enumerate(shape))
        operands: list[Value] = []
        for operand in node.operands:
            if operand in places:
                place = places[operand]
                strides = tuple(place.strides[i] for i in kept)
                moved = StridedView(place.location, strides, place.offset)
                operands.append(self._input(shape, built, moved))
            else:
                assert operand.node is not None
                attrs = {**operand.node.attrs, "shape": built}
                operands.append(self.builder.emit("full", **attrs))
        result = self.builder.emit(node.op, *operands, **node.attrs)
        strides = self.strides(shape, [target.strides[i] for i in kept], built)
        if strides == row_major(built):
            return result
        return self.builder.emit("layout", result, strides=strides)


class _General(_Exact):
    """Builder of the graph for all sizes."""

    _generalises = True

    def __init__(self, targets: Mapping[Value, Location], stored: Stored) -> None:
        super().__init__(targets, stored, lambda buffer: False)
        self.values: dict[str, Dim] = {}
        self.known: dict[Hashable, Dim] = {}

    def size(self, dim: Dim, role: Hashable) -> Dim:
        if (isinstance(dim, int) and dim <= 1) or role == "kept":
            return dim
        key = (role, dim)
        if key not in self.known:
            least = bounds(dim)[0]
            symbol = Sym(f"s{len(self.values)}", 2 if least is not None and least >= 2 else 0)
            self.known[key] = of_atom(symbol)
            self.values[symbol.name] = dim
            self.builder.dim_input(self.known[key])
        return self.known[key]

    def _same(self, shape: Sequence[Dim], built: Sequence[Dim]) -> bool:
        return tuple(shape) == tuple(substitute(size, self.values) for size in built)

    def _set_roles(self, node: Node) -> None:
        if OPS[node.op].kind is OpKind.SCORES:
            raise _NoForm  # masks and what else these meet have no roles
        ranks = [len(operand.shape) for operand in node.operands]
        if len(set(node.operands)) != len(node.operands):
            return
        if node.op == "matmul":
            batch = tuple(range(ranks[0] - 2))
            columns: list[tuple[Hashable, ...]] = [(*batch, "m", "k"), (*batch, "k", "n")]
        elif node.op == "conv":
            channels = "c" if node.attrs["groups"] == 1 else "kept"
            out = "o" if node.attrs["groups"] == 1 else "kept"
            space = range(ranks[0] - 2)
            columns = [("n", channels, *space), (out, channels, *("kept" for _ in space))]
        elif node.op == "attention":
            # Its kernels know the width of a head.
            same = node.operands[0].shape[1] == node.operands[1].shape[1]
            heads = "h" if same else "kept"
            read: tuple[Hashable, ...] = ("b", heads, "n", "kept")
            columns = [("b", heads, "m", "kept"), read, read]
            columns += [("b", heads, "m", "n")[4 - rank :] for rank in ranks[3:]]
        elif OPS[node.op].kind in (OpKind.REDUCE, OpKind.SCAN):
            columns = [tuple(range(ranks[0]))]
        else:
            return
        self.roles.update(zip(node.operands, columns, strict=True))


def _strides_of(places: Mapping[Value, StridedView]) -> list[tuple[Dim, ...]]:
    return [place.strides for place in places.values()]


def _by_memory(shape: Sequence[Dim], strides: Sequence[Dim]) -> list[int]:
    """Return the dims that are not 1, the one with the largest stride first."""
    order = [i for i, size in enumerate(shape) if size != 1]
    return _sorted(order[::-1], strides)[::-1]


def _sorted(order: Sequence[int], strides: Sequence[Dim]) -> list[int]:
    """Sort these dims by ascending stride if all strides are numbers, else keep the order."""
    if any(isinstance(stride, Expr) for stride in strides):
        return list(order)
    return sorted(order, key=lambda i: evaluate(strides[i], {}))


def _merge(
    shape: Sequence[Dim], order: Sequence[int], strides: Sequence[Sequence[Dim]]
) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """Merge neighbours that are one dim in all tensors: (sizes, dims that give strides)."""
    sizes: list[Dim] = []
    kept: list[int] = []
    for i in order:
        if kept and all(each[kept[-1]] == each[i] * shape[i] for each in strides):
            sizes[-1], kept[-1] = sizes[-1] * shape[i], i
        else:
            sizes.append(shape[i])
            kept.append(i)
    return tuple(sizes), tuple(kept)
