"""Builds graphs: types are inferred, names are given, wrong use fails at once; and makes the new
graph of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kernelmill.config.super_kernel_marks import UNMARKED
from kernelmill.core.dim import Dim, Sym, as_sym, symbols
from kernelmill.core.dtype import DType
from kernelmill.core.roles import InputRole
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
    """Walks `graph.nodes` in order. A node whose operands did not change is taken over as it is."""

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
    """Return the graph with what `write` returns for a node in place of its result; nodes for which
    it returns None are kept. Where it does for all, the graph is the same one."""
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
