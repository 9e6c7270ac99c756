"""Drops assertions about sizes alone, for a caller who has checked the sizes himself."""

from __future__ import annotations

from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.effects import is_assertion
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.passes.dce import EliminateDeadCode


@dataclass(frozen=True)
class DropSizeChecks:
    """An assertion goes when its condition is computed from dims and constants."""

    name: str = "drop-size-checks"

    def apply(self, graph: Graph) -> Graph:
        known: set[Value] = set()
        kept: list[Node] = []
        for node in graph.nodes:
            from_sizes = node.op != "aten" and all(operand in known for operand in node.operands)
            if from_sizes:
                known.update(node.results)
            if not (is_assertion(node) and node.operands[0] in known):
                kept.append(node)
        if len(kept) == len(graph.nodes):
            return graph
        return EliminateDeadCode().apply(replace(graph, nodes=kept))
