"""Computes at compile time what depends on constants alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Attr, Graph, Node, Value
from kernelmill.graph.ops import is_kind
from kernelmill.passes.rewriter import Rewriter

_SPREADING = frozenset({"expand", "reshape", "permute", "slice", "flip"})
"""Views under which a constant tensor is a constant tensor of another shape."""


@dataclass(frozen=True)
class FoldConstants:
    """Pointwise operators and views of tensors that hold one number everywhere become `full`."""

    name: str = "fold-constants"

    def apply(self, graph: Graph) -> Graph:
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            number = _number(node, rewriter.operands(node))
            if number is None:
                rewriter.keep(node)
                continue
            kind = node.result.type
            folded = rewriter.emit(node, "full", value=number, dtype=kind.dtype, shape=kind.shape)
            rewriter.replace(node.result, folded)
        return rewriter.finish()


def _number(node: Node, operands: Sequence[Value]) -> Attr:
    """The number in every element of the node's result, or None when there is no one such."""
    if node.op == "dim_value":
        value = node.attrs["value"]
        return value if isinstance(value, int) else None
    numbers = [_full_value(operand) for operand in operands]
    if not numbers or any(number is None for number in numbers):
        return None
    if node.op in _SPREADING:
        return numbers[0]
    return _computed(node, operands) if is_kind(node.op, "pointwise") else None


def _full_value(value: Value) -> Attr:
    node = value.node
    return node.attrs["value"] if node is not None and node.op == "full" else None


def _computed(node: Node, operands: Sequence[Value]) -> Attr:
    """The node's operator on single elements, by the interpreter: it says what operators mean."""
    builder = GraphBuilder("constant")
    singles = [
        builder.emit("full", value=_full_value(operand), dtype=operand.dtype, shape=())
        for operand in operands
    ]
    builder.graph.results = [builder.emit(node.op, *singles, **node.attrs)]
    (result,) = run_graph(builder.graph, [])
    assert result is not None and not isinstance(result, int)
    return result.item()
