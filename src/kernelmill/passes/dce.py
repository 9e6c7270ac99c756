"""Drops nodes whose results are not read."""

from __future__ import annotations

from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.effects import has_effect, is_assertion
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.rewriter import live_values


@dataclass(frozen=True)
class EliminateDeadCode:
    """Keeps ATen calls that do more than compute: assertions (but those that folding has found to
    hold), random numbers (dropping one would shift those of the next), sizes read from tensors, and
    operators we know nothing of."""

    name: str = "dce"

    def apply(self, graph: Graph) -> Graph:
        needed: set[Value] = set(live_values(graph))
        kept: list[Node] = []
        for node in reversed(graph.nodes):
            if _holds(node):
                continue
            if has_effect(node) or any(value in needed for value in node.results):
                needed.update(node.operands)
                kept.append(node)
        if len(kept) == len(graph.nodes):
            return graph
        return replace(graph, nodes=kept[::-1])


def _holds(node: Node) -> bool:
    """Return whether the node asserts a condition that folding has found to be true."""
    condition = node.operands[0].node if is_assertion(node) else None
    return condition is not None and condition.op == "full" and condition.attrs["value"] is True
