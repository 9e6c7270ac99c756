"""Computes values that depend only on constants, or on ranges of sizes, at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, provably_less
from kernelmill.core.scalar import roots
from kernelmill.graph.builder import GraphBuilder, Rewriter, rewritten
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Attr, Graph, Node, OpKind, Value
from kernelmill.graph.ops import OPS


@dataclass(frozen=True)
class FoldConstants:
    """Pointwise operators and views of tensors that hold one number everywhere become `full`, and
    so do comparisons of sizes that their ranges decide: torch asserts some for unknown sizes.

    Ranges are checked where arguments come in. Those of sizes found on the way, as by nonzero, rest
    on the assertions themselves, and decide nothing."""

    name: str = "fold-constants"

    def apply(self, graph: Graph) -> Graph:
        found = _found_on_the_way(graph)

        def folded(rewriter: Rewriter, node: Node) -> Value | None:
            number = _number(node, rewriter.operands(node), found)
            if number is None:
                return None
            kind = node.result.type
            return rewriter.emit(node, "full", value=number, dtype=kind.dtype, shape=kind.shape)

        return rewritten(graph, folded)


def _found_on_the_way(graph: Graph) -> frozenset[str]:
    """Return the symbols that nodes give their values."""
    binds: list[Any] = [node.attrs.get("binds") or () for node in graph.nodes]
    return frozenset(symbol for listed in binds for symbol, _, _ in listed)


def _number(node: Node, operands: Sequence[Value], found: frozenset[str]) -> Attr:
    """Return the number in every element of the node's result, None where it is unknown."""
    if node.op == "dim_value":
        value = node.attrs["value"]
        return value if isinstance(value, int) else None
    decided = _decided(node, operands, found)
    if decided is not None:
        return decided
    numbers = [operand.number for operand in operands]
    if not numbers or any(number is None for number in numbers):
        return None
    definition = OPS[node.op]
    if definition.kind is OpKind.VIEW and len(operands) == 1 and not definition.fills:
        return numbers[0]
    return _computed(node, operands) if definition.kind is OpKind.POINTWISE else None


def _decided(node: Node, operands: Sequence[Value], found: frozenset[str]) -> bool | None:
    """Return the result of a comparison of sizes if it holds for all values or none, else None."""
    if node.op not in ("ge", "gt", "le", "lt"):
        return None
    left, right = (_size(operand) for operand in operands)
    if left is None or right is None or found & roots((left, right)):
        return None
    if node.op in ("gt", "le"):
        left, right = right, left
    # Of "left < right", and of its opposite "left >= right".
    less = node.op in ("gt", "lt")
    if provably_less(left, right):
        return less
    return not less if provably_less(right, left + 1) else None


def _size(value: Value) -> Dim | None:
    """Return the size that a scalar integer is, None where it is none."""
    node = value.node
    if node is None or value.shape != () or node.op not in ("dim_value", "full"):
        return None
    size: Any = node.attrs["value"]
    return size if type(size) is int or isinstance(size, Expr) else None


def _computed(node: Node, operands: Sequence[Value]) -> Attr:
    """Compute the node's operator on single elements by the reference interpreter."""
    builder = GraphBuilder("constant")
    singles = [
        builder.emit("full", value=operand.number, dtype=operand.dtype, shape=())
        for operand in operands
    ]
    builder.graph.results = [builder.emit(node.op, *singles, **node.attrs)]
    (result,) = run_graph(builder.graph, [])
    assert isinstance(result, Tensor)
    return result.item()
