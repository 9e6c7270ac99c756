"""What nodes do besides computing their results."""

from __future__ import annotations

from functools import cache

import torch

from kernelmill.graph.ir import Graph, Node
from kernelmill.torch_internals.operators import OpOverload, overload_named


def asserts(target: str) -> bool:
    """Whether "namespace.name.overload" raises an error unless its first operand is true."""
    return target.startswith("aten._assert_async.")


def is_assertion(node: Node) -> bool:
    """Whether the node is an operator that does so."""
    return node.op == "aten" and asserts(str(node.attrs["target"]))


def has_effect(node: Node) -> bool:
    """Whether the node does more than compute its results: assertions, sizes read from tensors,
    and what `keeps_its_turn` says."""
    if node.op != "aten":
        return False
    return bool(not node.results or node.attrs["binds"] or keeps_its_turn(node))


def keeps_its_turn(node: Node) -> bool:
    """Whether the node draws random numbers, or is an operator that we know nothing of. Such nodes
    run in the order of the program: another order gives each other numbers."""
    return node.op == "aten" and _acts(str(node.attrs["target"]))


def turns(graph: Graph) -> dict[Node, Node]:
    """The nodes that keep their turn, each but the first by the one whose turn is before."""
    nodes = [node for node in graph.nodes if keeps_its_turn(node)]
    return dict(zip(nodes[1:], nodes, strict=False))


@cache
def _acts(target: str) -> bool:
    operator = overload_named(target)
    if target.split(".")[0] not in ("aten", "prims") or not isinstance(operator, OpOverload):
        return True
    return torch.Tag.nondeterministic_seeded in operator.tags
