"""Merges chains of views, so that each tensor is read through at most one view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.graph.builder import Rewriter, rewritten
from kernelmill.graph.ir import Graph, Node, Value


@dataclass(frozen=True)
class MergeViews:
    """Two views of one kind become one, and a view that changes nothing disappears.

    A permutation that only moves dims of size 1 is a reshape, which merges with its neighbours.
    """

    name: str = "merge-views"

    def apply(self, graph: Graph) -> Graph:
        return rewritten(graph, _merged)


def _merged(rewriter: Rewriter, node: Node) -> Value | None:
    merge = _MERGE.get(node.op)
    return None if merge is None else merge(rewriter, node, *rewriter.operands(node))


def _outer(rewriter: Rewriter, node: Node, x: Value) -> Value | None:
    """Drop the first of two views of which the second one's shape says all."""
    inner = x.made_by(node.op)
    source = x if inner is None else inner.operands[0]
    if source.shape == node.result.shape:
        return source
    if inner is None:
        return None
    return rewriter.emit(node, node.op, source, shape=node.result.shape)


def _permute(rewriter: Rewriter, node: Node, x: Value) -> Value | None:
    dims: Any = node.attrs["dims"]
    inner = x.made_by("permute")
    source = x
    if inner is not None:
        source = inner.operands[0]
        first: Any = inner.attrs["dims"]
        dims = [first[d] for d in dims]
    if tuple(dims) == tuple(range(len(dims))):
        return source
    moved = [d for d in dims if source.shape[d] != 1]
    if moved == sorted(moved):
        return _flat_reshape(rewriter, node, source, node.result.shape)
    if inner is None:
        return None
    return rewriter.emit(node, "permute", source, dims=tuple(dims))


def _flat_reshape(rewriter: Rewriter, node: Node, source: Value, shape: tuple[Dim, ...]) -> Value:
    inner = source.made_by("reshape")
    source = source if inner is None else inner.operands[0]
    return source if source.shape == shape else rewriter.emit(node, "reshape", source, shape=shape)


def _slice(rewriter: Rewriter, node: Node, x: Value) -> Value | None:
    attrs: dict[str, Any] = node.attrs
    dim, start, end, step = (attrs[name] for name in ("dim", "start", "end", "step"))
    if (start, end, step) == (0, x.shape[dim], 1):
        return x
    inner = x.made_by("slice")
    if inner is None or inner.attrs["dim"] != dim or inner.attrs["step"] != 1:
        return None
    first: Any = inner.attrs["start"]
    return rewriter.emit(
        node, "slice", inner.operands[0], dim=dim, start=first + start, end=first + end, step=step
    )


def _layout(rewriter: Rewriter, node: Node, x: Value) -> Value | None:
    """Drop the first of two layouts, which does not count."""
    inner = x.made_by("layout")
    if inner is None:
        return None
    return rewriter.emit(node, "layout", inner.operands[0], strides=node.attrs["strides"])


_MERGE: dict[str, Callable[[Rewriter, Node, Value], Value | None]] = {
    "reshape": _outer,
    "permute": _permute,
    "expand": _outer,
    "slice": _slice,
    "layout": _layout,
}
