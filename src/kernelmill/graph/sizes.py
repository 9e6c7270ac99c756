"""A graph for one set of sizes: numbers in place of symbols, everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Sym, of_atom, substitute
from kernelmill.core.scalar import at_values, completed, in_order
from kernelmill.graph import ir


def at_sizes(graph: ir.Graph, sizes: Mapping[str, int], name: str = "") -> ir.Graph:
    """Return the graph for these values of its symbols, under a name of its own if one is given.

    Integer arguments that bind these symbols are dropped; the other arguments keep their order.
    Symbols that `sizes` does not name stay.
    """
    return _Sizes(graph, sizes).run(name or graph.name)


@dataclass(frozen=True, eq=False)
class GraphSource:
    """The source of a program: a graph, for these values of its symbols where some are given.

    The graph with numbers in it is made when it is asked for: most gears' never is.
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
