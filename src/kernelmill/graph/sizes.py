"""A graph with numbers in place of symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernelmill.core.dim import Expr, substitute
from kernelmill.graph.ir import Attr, DimInput, Graph, Input, Node, Result, TensorType, Value


def at_sizes(graph: Graph, values: Mapping[str, int]) -> Graph:
    """The graph for these values of its symbols, without the integer arguments that bind them."""
    return _Sizes(graph, values).run()


class _Sizes:
    def __init__(self, graph: Graph, values: Mapping[str, int]) -> None:
        self.graph = graph
        self.values = values
        self.new: dict[Value, Value] = {}

    def run(self) -> Graph:
        graph = self.graph
        fresh = Graph(graph.name)
        fresh.symbols = {n: s for n, s in graph.symbols.items() if n not in self.values}
        for entry in graph.inputs:
            if isinstance(entry, Input):
                fresh.inputs.append(replace(entry, value=self._value(entry.value)))
            elif entry.symbol.name not in self.values:
                fresh.inputs.append(DimInput(entry.symbol))
        fresh.nodes = [self._node(node) for node in graph.nodes]
        fresh.results = [self._result(result) for result in graph.results]
        fresh.updates = [(self.new[held], self.new[value]) for held, value in graph.updates]
        return fresh

    def _node(self, node: Node) -> Node:
        attrs = {name: self._attr(attr) for name, attr in node.attrs.items()}
        operands = [self.new[operand] for operand in node.operands]
        fresh = Node(node.op, operands, attrs, node.origin, node.scope)
        fresh.results = tuple(self._value(value, fresh) for value in node.results)
        return fresh

    def _value(self, value: Value, node: Node | None = None) -> Value:
        shape = tuple(substitute(size, self.values) for size in value.shape)
        strides = value.type.strides
        if strides is not None:
            strides = tuple(substitute(stride, self.values) for stride in strides)
        self.new[value] = Value(value.name, TensorType(value.dtype, shape, strides), node)
        return self.new[value]

    def _attr(self, attr: Attr) -> Attr:
        if isinstance(attr, tuple):
            return tuple(map(self._attr, attr))
        return substitute(attr, self.values) if isinstance(attr, Expr) else attr

    def _result(self, result: Result) -> Result:
        if isinstance(result, Value):
            return self.new[result]
        return substitute(result, self.values) if isinstance(result, Expr) else result
