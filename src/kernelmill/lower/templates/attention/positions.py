"""Bounds on the positions of the keys that a mask shows."""

from __future__ import annotations

from collections.abc import Iterable

from kernelmill.graph.ir import Node, Value

_ROWS, _KEYS = 2, 3

Linear = tuple[int, int, int]
"""What an integer is times the row, times the key, and besides."""


def latest_key(mask: Value) -> int | None:
    """Return the least known number d such that the mask hides key n from row m where n > m + d;
    None without one."""
    found = [c for c in map(_distance, _conjuncts(mask)) if c is not None]
    return min(found, default=None)


def _conjuncts(mask: Value) -> Iterable[Node]:
    """Yield comparisons that all hold where the mask does."""
    node = mask.node
    if node is None:
        return
    if node.op in ("bit_and", "mul", "expand"):
        for operand in node.operands:
            yield from _conjuncts(operand)
    elif node.op in ("ge", "gt", "le", "lt"):
        yield node


def _distance(node: Node) -> int | None:
    """Return d of a comparison that says n <= m + d."""
    large, small = map(_linear, node.operands if node.op[0] == "g" else reversed(node.operands))
    if large is None or small is None:
        return None
    rows, keys, more = (a - b for a, b in zip(large, small, strict=True))
    return more - (node.op[1] == "t") if (rows, keys) == (1, -1) else None


def _linear(value: Value) -> Linear | None:
    node = value.node
    if node is None:
        return None
    if node.op in ("expand", "cast"):
        integers = all(
            x.dtype.kind == "int" and x.dtype.bits >= 32 for x in (value, *node.operands)
        )
        return _linear(node.operands[0]) if integers else None
    if node.op == "iota":
        dim = node.attrs["dim"]
        return (int(dim == _ROWS), int(dim == _KEYS), 0) if dim in (_ROWS, _KEYS) else None
    if node.op == "full":
        number = node.attrs["value"]
        return (0, 0, number) if type(number) is int else None
    if node.op not in ("add", "sub"):
        return None
    left, right = map(_linear, node.operands)
    if left is None or right is None:
        return None
    sign = 1 if node.op == "add" else -1
    a, b, c = (x + sign * y for x, y in zip(left, right, strict=True))
    return a, b, c
