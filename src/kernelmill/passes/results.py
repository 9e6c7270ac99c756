"""Keeps results apart that rewrites have made one value."""

from __future__ import annotations

from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.passes.rewriter import Rewriter


def apart(before: Graph, after: Graph) -> Graph:
    """`after` with a copy in place of each result that shares memory where `before` does not.

    A result that is an argument is that argument's memory, and one value twice is one tensor
    twice. So a computed result must not become an argument (x * 1), nor the same as another one
    (x + 1 twice): who writes to the one would find it in the other.
    """
    copied = _copied(before, after)
    if not copied:
        return after
    rewriter = Rewriter(after)
    for node in after.nodes:
        rewriter.keep(node)
    made = rewriter.finish()
    for position in copied:
        value = made.results[position]
        assert isinstance(value, Value)
        like = value.node or Node("layout", (), {})
        made.results[position] = rewriter.emit(
            like, "layout", value, strides=value.type.memory_strides
        )
    return made


def _copied(before: Graph, after: Graph) -> list[int]:
    """The places of results that need a copy. The first that has a value keeps it."""
    keeper: dict[Value, Value] = {}
    found: list[int] = []
    for position, (old, new) in enumerate(zip(before.results, after.results, strict=True)):
        if not isinstance(old, Value) or not isinstance(new, Value):
            continue
        became_argument = new.node is None and old.node is not None
        if became_argument or keeper.setdefault(new, old) is not old:
            found.append(position)
    return found
