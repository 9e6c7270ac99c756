"""Effects of nodes besides computing their results, and owners of the memory of values."""

from __future__ import annotations

from functools import cache

import torch

from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.torch_internals.operators import OpOverload, gives_views, overload_named


def asserts(target: str) -> bool:
    """Return whether "namespace.name.overload" raises an error unless its first operand is true."""
    return target.startswith("aten._assert_async.")


def is_assertion(node: Node) -> bool:
    """Return whether the node is an ATen call that asserts."""
    return node.op == "aten" and asserts(str(node.attrs["target"]))


def has_effect(node: Node) -> bool:
    """Return whether the node does more than compute its results: assertions, sizes read from
    tensors, and nodes that keep their turn."""
    if node.op != "aten":
        return False
    return bool(not node.results or node.attrs["binds"] or keeps_its_turn(node))


def keeps_its_turn(node: Node) -> bool:
    """Return whether the node draws random numbers, or is an unknown operator. Such nodes run in
    the order of the program: in another order each would draw other numbers."""
    return node.op == "aten" and _acts(str(node.attrs["target"]))


def turns(graph: Graph) -> dict[Node, Node]:
    """Map each node that keeps its turn, but the first, to the one whose turn is before."""
    nodes = [node for node in graph.nodes if keeps_its_turn(node)]
    return dict(zip(nodes[1:], nodes, strict=False))


@cache
def _acts(target: str) -> bool:
    operator = overload_named(target)
    if target.split(".")[0] not in ("aten", "prims") or not isinstance(operator, OpOverload):
        return True
    return torch.Tag.nondeterministic_seeded in operator.tags


def memory_of(value: Value) -> Value:
    """Return the input or computed value whose memory a value has: itself, except for ATen's views,
    which share memory with their first operand."""
    while (
        value.node is not None
        and value.node.op == "aten"
        and value.node.operands
        and gives_views(str(value.node.attrs["target"]))
    ):
        value = value.node.operands[0]
    return value
