"""Drops nodes whose results nobody reads."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.passes.rewriter import live_values


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


def is_assertion(node: Node) -> bool:
    """Whether the node raises an error unless its first operand is true."""
    return node.op == "aten" and str(node.attrs["target"]).startswith("aten._assert_async.")


def _holds(node: Node) -> bool:
    """Whether it asserts what folding has found to be true."""
    condition = node.operands[0].node if is_assertion(node) else None
    return condition is not None and condition.op == "full" and condition.attrs["value"] is True


def has_effect(node: Node) -> bool:
    """Whether the node does more than compute its results."""
    if node.op != "aten":
        return False
    return bool(not node.results or node.attrs["binds"] or _acts(str(node.attrs["target"])))


@cache
def _acts(target: str) -> bool:
    namespace, name, overload = target.split(".")
    if namespace not in ("aten", "prims"):
        return True
    operator = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    return torch.Tag.nondeterministic_seeded in operator.tags
