"""Builds graphs, and the new graphs of passes. Types are inferred, names are made, and wrong use is
an error at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from kernelmill.config.super_kernel_marks import UNMARKED
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Sym, as_sym, of_atom, substitute, symbols
from kernelmill.core.dtype import DType, InputRole
from kernelmill.core.scalar import at_values, completed, in_order
from kernelmill.graph import ir
from kernelmill.graph.ir import Attr, DimInput, Graph, Input, Node, Result, TensorType, Value
from kernelmill.graph.ops import infer


class GraphBuilder:
    """Appends nodes to one graph. `origin` and `mark` are stamped on the nodes that follow;
    `deterministic` is for those that run in ATen (`Mark.deterministic`)."""

    def __init__(self, name: str, origin: str = "") -> None:
        self.graph = Graph(name)
        self.origin = origin
        self.mark = UNMARKED
        self.deterministic: int | None = None
        self._count = 0

    def input(
        self,
        name: str,
        dtype: DType,
        shape: Sequence[Dim],
        strides: Sequence[Dim] | None = None,
        role: InputRole = InputRole.USER,
    ) -> Value:
        """Add a tensor argument; symbols in its shape and strides become the graph's."""
        kind = TensorType(dtype, tuple(shape), None if strides is None else tuple(strides))
        for dim in (*kind.shape, *kind.memory_strides):
            self.graph.symbols.update(symbols(dim))
        value = Value(name, kind)
        self.graph.inputs.append(Input(value, role))
        return value

    def dim_input(self, symbol: Dim) -> None:
        """Add an integer argument that binds `symbol`."""
        found = as_sym(symbol)
        if found is None:
            raise ValueError(f"a dim input must be one symbol, not {symbol}")
        self.graph.symbols[found.name] = found
        self.graph.inputs.append(DimInput(found))

    def symbol(self, symbol: Sym) -> None:
        """Make a symbol known that no input carries (a size found while running)."""
        self.graph.symbols[symbol.name] = symbol

    def equal(self, a: Dim, b: Dim) -> None:
        """Take two sizes for equal; the program refuses calls where they are not."""
        if (a, b) not in self.graph.equations:
            self.graph.equations.append((a, b))

    def emit(self, op: str, *operands: Value, **attrs: Attr) -> Value:
        """Append a node with one result. Raises TypingError when it does not fit."""
        return self.emit_many(op, *operands, **attrs)[0]

    def emit_many(self, op: str, *operands: Value, **attrs: Attr) -> tuple[Value, ...]:
        """Append a node with any number of results."""
        types = infer(op, [operand.type for operand in operands], attrs)
        mark = self.mark
        if op == "aten" and self.deterministic is not None:
            mark = replace(mark, deterministic=self.deterministic)
        node = Node(op, operands, attrs, self.origin, mark)
        results: list[Value] = []
        for kind in types:
            results.append(Value(str(self._count), kind, node))
            self._count += 1
        node.results = tuple(results)
        self.graph.nodes.append(node)
        return node.results


class Rewriter:
    """Walks `graph.nodes` in order. A node whose operands did not change is copied unchanged."""

    def __init__(self, graph: Graph) -> None:
        self._old = graph
        self._builder = GraphBuilder(graph.name)
        self._new: dict[Value, Value] = {}
        self.graph = self._builder.graph
        self.graph.inputs = list(graph.inputs)
        self.graph.symbols = dict(graph.symbols)
        self.graph.equations, self.graph.bodies = list(graph.equations), graph.bodies

    def value(self, value: Value) -> Value:
        """Return the value of the new graph that stands for one of the old graph."""
        return self._new.get(value, value)

    def operands(self, node: Node) -> tuple[Value, ...]:
        """Return the node's operands in the new graph."""
        new = self._new
        return tuple([new.get(operand, operand) for operand in node.operands])

    def keep(self, node: Node, **attrs: Attr) -> None:
        """Carry a node over, with `attrs` added to its own.

        What an ATen call reads lies in memory as it did: some of ATen's operators count on it.
        """
        if not attrs and self._new.keys().isdisjoint(node.operands):
            self.graph.nodes.append(node)
            return
        operands = self.operands(node)
        if node.op == "aten" and operands != node.operands:
            operands = tuple([self._lying_as(old) for old in node.operands])
        if operands == node.operands and not attrs:
            self.graph.nodes.append(node)
            return
        wanted = {**node.attrs, **attrs} if attrs else node.attrs
        fresh = Node(node.op, operands, wanted, node.origin, node.mark)
        made: list[Value] = []
        for old in node.results:
            new = self._new[old] = Value(old.name, old.type, fresh)
            made.append(new)
        fresh.results = tuple(made)
        self.graph.nodes.append(fresh)

    def replace(self, old: Value, new: Value) -> None:
        """Let `new`, a value of the new graph, stand for `old`."""
        self._new[old] = new

    def emit(self, like: Node, op: str, *operands: Value, **attrs: Attr) -> Value:
        """Append a node to the new graph, with the origin and scope of an old one."""
        self._builder.origin, self._builder.mark = like.origin, like.mark
        return self._builder.emit(op, *operands, **attrs)

    def lay_out(self, values: Iterable[Value]) -> None:
        """Give the counterparts of these old values the memory strides that they had."""
        for value in values:
            self.replace(value, self._lying_as(value))

    def _lying_as(self, old: Value) -> Value:
        """Return the new graph's counterpart of a value, in memory that has the same strides."""
        new, strides = self.value(old), old.type.memory_strides
        if new.type.memory_strides == strides:
            return new
        return self._builder.emit("layout", new, strides=strides)

    def finish(self) -> Graph:
        """Return the new graph, with the results and updates of the old one."""
        self.graph.results = [self._result(result) for result in self._old.results]
        self.graph.updates = [(held, self.value(new)) for held, new in self._old.updates]
        return self.graph

    def _result(self, result: Result) -> Result:
        return self.value(result) if isinstance(result, Value) else result


def rewritten(graph: Graph, write: Callable[[Rewriter, Node], Value | None]) -> Graph:
    """Return the graph with what `write` returns for a node in place of its result. Where it
    returns None the node is kept; where it does so for all nodes, `graph` itself is returned."""
    rewriter, written = Rewriter(graph), False
    for node in graph.nodes:
        new = write(rewriter, node)
        if new is None:
            rewriter.keep(node)
        else:
            written = True
            rewriter.replace(node.result, new)
    return rewriter.finish() if written else graph


def live_values(graph: Graph) -> Iterable[Value]:
    """Yield the values that leave the graph: results and updates."""
    yield from (result for result in graph.results if isinstance(result, Value))
    yield from (new for _, new in graph.updates)


def at_sizes(graph: ir.Graph, sizes: Mapping[str, int], name: str = "") -> ir.Graph:
    """Return the graph for these values of its symbols, under a name of its own if one is given.

    Integer arguments that bind these symbols are dropped; the other arguments keep their order.
    Symbols that `sizes` does not name stay.
    """
    return _Sizes(graph, sizes).run(name or graph.name)


@dataclass(frozen=True, eq=False)
class GraphSource:
    """The source of a program: a graph, for these values of its symbols where some are given.

    The graph with numbers is made when it is needed; most gears do not need it.
    """

    general: ir.Graph
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    name: str = ""

    @cached_property
    def graph(self) -> ir.Graph:
        """Graph for these values."""
        return at_sizes(self.general, self.sizes, self.name) if self.sizes else self.general


class _Sizes:
    def __init__(self, graph: ir.Graph, sizes: Mapping[str, int]) -> None:
        self.graph = graph
        self.values: dict[ir.Value, ir.Value] = {}
        self.sizes: dict[str, Dim] = {**sizes, **completed(in_order(graph.symbols.values()), sizes)}
        self.symbols: dict[str, Sym] = {}
        self.dims: dict[Dim, Dim] = {}
        for symbol in in_order(graph.symbols.values()):
            if symbol.name not in self.sizes:
                self._bound(symbol)

    def run(self, name: str) -> ir.Graph:
        old, new = self.graph, ir.Graph(name)
        new.symbols, new.bodies = dict(self.symbols), old.bodies
        for entry in old.inputs:
            if isinstance(entry, ir.Input):
                new.inputs.append(ir.Input(self._fresh(entry.value), entry.role))
            elif entry.symbol.name in self.symbols:
                new.inputs.append(ir.DimInput(self.symbols[entry.symbol.name]))
        for node in old.nodes:
            new.nodes.append(self._node(node))
        new.results = [self._result(result) for result in old.results]
        new.equations = [(self._dim(left), self._dim(right)) for left, right in old.equations]
        new.updates = [(self.values[held], self.values[fresh]) for held, fresh in old.updates]
        return new

    def _bound(self, symbol: Sym) -> None:
        """Keep a symbol; its upper bound, and the dims it is computed from, may use replaced
        ones."""
        if isinstance(symbol.hi, Expr) or symbol.value is not None:
            high = None if symbol.hi is None else substitute(symbol.hi, self.sizes)
            value = None if symbol.value is None else at_values(symbol.value, self.sizes)
            symbol = Sym(symbol.name, symbol.lo, high, value)
            self.sizes[symbol.name] = of_atom(symbol)
        self.symbols[symbol.name] = symbol

    def _node(self, node: ir.Node) -> ir.Node:
        operands = tuple(self.values[operand] for operand in node.operands)
        attrs = {key: self._attr(value) for key, value in node.attrs.items()}
        fresh = ir.Node(node.op, operands, attrs, node.origin, node.mark)
        fresh.results = tuple(self._fresh(result, fresh) for result in node.results)
        return fresh

    def _fresh(self, value: ir.Value, node: ir.Node | None = None) -> ir.Value:
        kind = value.type
        strides = None if kind.strides is None else self._all(kind.strides)
        fresh = ir.Value(
            value.name, ir.TensorType(kind.dtype, self._all(kind.shape), strides), node
        )
        self.values[value] = fresh
        return fresh

    def _result(self, result: ir.Result) -> ir.Result:
        if isinstance(result, ir.Value):
            return self.values[result]
        if isinstance(result, ir.NumberResult):
            return ir.NumberResult(result.kind, self._dim(result.word))
        return None if result is None else self._dim(result)

    def _attr(self, value: ir.Attr) -> ir.Attr:
        if isinstance(value, tuple):
            return tuple(self._attr(item) for item in value)
        return self._dim(value) if isinstance(value, Expr) else value

    def _all(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(self._dim(dim) for dim in dims)

    def _dim(self, dim: Dim) -> Dim:
        if isinstance(dim, int):
            return dim
        known = self.dims.get(dim)
        if known is None:
            known = self.dims[dim] = substitute(dim, self.sizes)
        return known
