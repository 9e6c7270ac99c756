"""Computes equal nodes once, and removes unused nodes and assertions that are already checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.builder import Rewriter, live_values, rewritten
from kernelmill.graph.effects import has_effect, is_assertion
from kernelmill.graph.ir import Graph, Node, Value


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
    return is_assertion(node) and node.operands[0].number is True


@dataclass(frozen=True)
class EliminateCommonSubexpressions:
    """One node for all that have the same operator, operands, attributes and super-kernel scope.

    ATen calls are left alone: they may draw random numbers.
    """

    name: str = "cse"

    def apply(self, graph: Graph) -> Graph:
        seen: dict[Any, Value] = {}

        def known(rewriter: Rewriter, node: Node) -> Value | None:
            if node.op == "aten":
                return None
            first = seen.setdefault(_key(node, rewriter.operands(node)), node.result)
            return None if first is node.result else rewriter.value(first)

        return rewritten(graph, known)


def _key(node: Node, operands: tuple[Value, ...]) -> Any:
    # Text tells 0.0 from -0.0, True from 1, and NaN from nothing at all.
    attrs = tuple((name, repr(value)) for name, value in sorted(node.attrs.items()))
    return node.op, operands, attrs, node.mark


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
