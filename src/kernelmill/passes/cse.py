"""Computes equal things once."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.rewriter import Rewriter


@dataclass(frozen=True)
class EliminateCommonSubexpressions:
    """One node for all that have the same operator, operands, attributes and super-kernel scope.

    ATen calls are left alone: they may draw random numbers.
    """

    name: str = "cse"

    def apply(self, graph: Graph) -> Graph:
        rewriter = Rewriter(graph)
        seen: dict[Any, Value] = {}
        for node in graph.nodes:
            if node.op == "aten":
                rewriter.keep(node)
                continue
            key = _key(node, rewriter.operands(node))
            known = seen.get(key)
            if known is None:
                rewriter.keep(node)
                seen[key] = rewriter.value(node.result)
            else:
                rewriter.replace(node.result, known)
        return rewriter.finish()


def _key(node: Node, operands: tuple[Value, ...]) -> Any:
    # Text tells 0.0 from -0.0, True from 1, and NaN from nothing at all.
    attrs = tuple((name, repr(value)) for name, value in sorted(node.attrs.items()))
    return node.op, operands, attrs, node.mark
