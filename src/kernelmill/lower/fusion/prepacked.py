"""Values that depend only on parameters, and are worth computing once instead of at every call.

Examples are the scale and shift of a batch norm in inference, or projections of learned positions.
They are computed when weights are packed, and again when one of the statistics or parameters has
changed.
"""

from __future__ import annotations

from collections.abc import Collection

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Expr, product
from kernelmill.graph.ir import Graph, Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.axes import viewed

_MOST_ELEMENTS = 2**16

_FOLDS = (OpKind.CONTRACT, OpKind.ATTENTION, OpKind.REDUCE)
"""Operators that are never computed at each call where parameters alone decide their operands."""


def kept_constants(graph: Graph, constants: Collection[Value]) -> frozenset[Value]:
    """Return values of `constants` alone that a `layout` stores in memory of their own: computed
    when weights are packed, and read there as parameters are."""
    lasting, plain, kept = set(constants), set[Value](), set[Value]()
    for node in graph.nodes:
        if node.op == "aten" or any(x not in lasting and x not in plain for x in node.operands):
            continue
        made = any(x in lasting for x in node.operands)
        (lasting if made else plain).update(node.results)
        if node.op == "layout" and made and viewed(node.operands[0]) not in constants:
            kept.add(node.result)
    return frozenset(kept)


@dataclass(frozen=True)
class Prepacked:
    """The values that are computed when weights are packed.

    alone   values that are read at calls too: a kernel of its own stores each
    folded  all values made by products or reductions of parameters: no kernel has such a value and
            one that is computed at calls
    """

    alone: frozenset[Value] = frozenset()
    folded: frozenset[Value] = frozenset()

    def separates(self, value: Value, other: Value) -> bool:
        """Return whether one is computed when weights are packed, the other at calls."""
        return (value in self.folded) != (other in self.folded)


def prepacked_constants(graph: Graph, constants: Collection[Value]) -> Prepacked:
    """Find values of `constants` alone that operators read, at most through views, together with
    other values: all results of products or reductions, and small pointwise ones for pointwise
    operators. (Contractions pack what is constant.)"""
    lasting, plain, folded = set(constants), set[Value](), set[Value]()
    worth = set[Value]()
    for node in graph.nodes:
        kind = OPS[node.op].kind
        known = kind in _FOLDS or (OPS[node.op].elementwise and kind is not OpKind.GATHER)
        known = known and not any(map(is_symbolic, (*node.attrs.values(), *_shapes(node))))
        if not known or any(x not in lasting and x not in plain for x in node.operands):
            bases = {viewed(x) for x in node.operands if x in lasting}
            if kind is OpKind.POINTWISE:
                worth |= {x for x in bases if x in folded or _small(x)}
            elif kind is not OpKind.CONTRACT:
                worth |= bases & folded
        elif any(x in lasting for x in node.operands):
            lasting.update(node.results)
            if kind in _FOLDS or any(x in folded for x in node.operands):
                folded.update(node.results)
        else:
            plain.update(node.results)
    return Prepacked(frozenset(worth & lasting), frozenset(folded))


def is_symbolic(attr: object) -> bool:
    """Return whether a symbol occurs in a shape or an attribute."""
    if isinstance(attr, int):
        return False
    if isinstance(attr, tuple):
        parts: tuple[object, ...] = attr
        return any(map(is_symbolic, parts))
    return isinstance(attr, Expr)


def _shapes(node: Node) -> list[object]:
    return [value.shape for value in node.results]


def _small(value: Value) -> bool:
    """Return whether this is a pointwise value of few elements."""
    node, size = value.node, product(value.shape)
    if node is None or OPS[node.op].kind is not OpKind.POINTWISE or node.op == "cast":
        return False
    return isinstance(size, int) and size <= _MOST_ELEMENTS
