"""Values that attentions compute themselves: scores, and their modifications and masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.ops import OPS


def modifications(graph: Graph, stored: AbstractSet[Value]) -> frozenset[Value]:
    """Return the values between scores and attentions, and elementwise operands of these that vary
    along queries and keys, are not `stored` and have no other reader."""
    seeds = [node for node in graph.nodes if node.op == "flex_attention"]
    if not seeds:
        return frozenset()
    scores, users = _made_of_scores(graph.nodes), graph.users()
    wanted = {value for seed in seeds for value in _modified(seed)}
    inside: set[Value] = set()
    for node in reversed(graph.nodes):
        if len(node.results) != 1 or node.result not in wanted:
            continue
        value = node.result
        own = value in scores or (
            OPS[node.op].elementwise
            and _is_plane(value)
            and value not in stored
            and _read_inside(value, users, inside)
        )
        if own:
            inside.add(value)
            # What is looked up in may be anywhere.
            gathers = OPS[node.op].kind is OpKind.GATHER
            wanted.update(node.operands[gathers:])
    return frozenset(inside)


def _made_of_scores(nodes: Iterable[Node]) -> set[Value]:
    found: set[Value] = set()
    for node in nodes:
        definition = OPS[node.op]
        if definition.kind is OpKind.SCORES or (
            definition.elementwise and not found.isdisjoint(node.operands)
        ):
            found.add(node.result)
    return found


def _modified(seed: Node) -> tuple[Value, ...]:
    """Return the operands of an attention that it reads element by element."""
    masked = bool(seed.attrs.get("masked"))
    return (seed.operands[0], *seed.operands[2 : 2 + masked])


def _is_plane(value: Value) -> bool:
    """Return whether a value varies along both queries and keys."""
    return len(value.shape) == 4 and 1 not in value.shape[2:]


def _read_inside(
    value: Value, users: Mapping[Value, Iterable[Node]], inside: AbstractSet[Value]
) -> bool:
    return all(
        value in _modified(user)
        if user.op == "flex_attention"
        else len(user.results) == 1 and user.result in inside
        for user in users[value]
    )
