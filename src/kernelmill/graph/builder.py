"""Builds graphs: types are inferred, names are given, wrong use fails at the line that does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelmill.config.super_kernel_marks import UNMARKED
from kernelmill.core.dim import Dim, Sym, as_sym, symbols
from kernelmill.core.dtype import DType
from kernelmill.core.roles import InputRole
from kernelmill.graph.ir import Attr, DimInput, Graph, Input, Node, TensorType, Value
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
