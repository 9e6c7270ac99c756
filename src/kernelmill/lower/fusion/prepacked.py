"""Values that parameters alone decide, worth computing once instead of at every call.

Such are the scale and the shift that a batch norm in inference amounts to: they are made when
weights are packed, and made again when one of the statistics or parameters has changed.
"""

from __future__ import annotations

from collections.abc import Collection

from kernelmill.core.dim import product
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Graph, Value
from kernelmill.graph.ops import OPS

_MOST_ELEMENTS = 2**16


def kept_constants(graph: Graph, constants: Collection[Value]) -> frozenset[Value]:
    """Values that come from `constants` alone and that the graph asks for in memory of their own,
    by a `layout`: they are made when weights are packed, and read there as parameters are."""
    lasting, plain, kept = set(constants), set[Value](), set[Value]()
    for node in graph.nodes:
        if node.op == "aten" or any(x not in lasting and x not in plain for x in node.operands):
            continue
        made = any(x in lasting for x in node.operands)
        (lasting if made else plain).update(node.results)
        if node.op == "layout" and made and _base(node.operands[0]) not in constants:
            kept.add(node.result)
    return frozenset(kept)


def prepacked_constants(graph: Graph, constants: Collection[Value]) -> set[Value]:
    """Small pointwise values that come from `constants` and that pointwise operators read, at most
    through views, together with what does not. (Contractions pack what is constant.)"""
    lasting, plain = set(constants), set[Value]()
    worth = set[Value]()
    for node in graph.nodes:
        kind = OPS[node.op].kind
        known = OPS[node.op].elementwise and kind is not OpKind.GATHER
        if not known or any(x not in lasting and x not in plain for x in node.operands):
            if kind is OpKind.POINTWISE:
                worth.update(_base(x) for x in node.operands if x in lasting)
        elif any(x in lasting for x in node.operands):
            lasting.update(node.results)
        else:
            plain.update(node.results)
    return {value for value in worth if value in lasting and _small(value)}


def _base(value: Value) -> Value:
    while value.node is not None and OPS[value.node.op].transparent:
        if len(value.node.operands) != 1:
            return value
        value = value.node.operands[0]
    return value


def _small(value: Value) -> bool:
    """Whether this is a computed value of few elements."""
    node, size = value.node, product(value.shape)
    if node is None or OPS[node.op].kind is not OpKind.POINTWISE or node.op == "cast":
        return False
    return isinstance(size, int) and size <= _MOST_ELEMENTS
