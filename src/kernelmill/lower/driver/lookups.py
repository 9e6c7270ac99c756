"""Images that are resized: pixels looked up along one axis after the other.

    index(x, rows expanded, columns expanded) --> index(index(x, columns), rows)

What is looked up first is stored: each column once for all rows that read it, and these rows lie
in memory one number after the other. Where channels come last, those of a pixel do so already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kernelmill.core.dim import Dim
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.rewriter import Rewriter, live_values
from kernelmill.lower.fusion.costs import extent


def look_up_by_axis(graph: Graph, images: Collection[Value]) -> tuple[Graph, frozenset[Value]]:
    """Return the graph with lookups of whole rows and columns split by axis, but for these images,
    and the values to store for that."""
    apart = {node: found for node in graph.nodes if (found := _along_axes(node, images))}
    if not apart:
        return graph, frozenset()
    rewriter = Rewriter(graph)
    made: dict[tuple[Value, int, Value], Value] = {}
    stored: set[Value] = set()
    for node in graph.nodes:
        axes = apart.get(node)
        if axes is None:
            rewriter.keep(node)
            continue
        options = {"unsigned": True} if node.attrs.get("unsigned") else {}
        found = rewriter.value(node.operands[0])
        for dim in _in_order(node, axes):
            before, index = found, rewriter.value(axes[dim])
            if (before, dim, index) not in made:
                flat = rewriter.emit(node, "reshape", index, shape=(node.result.shape[dim],))
                made[before, dim, index] = rewriter.emit(
                    node, "index", before, flat, dims=(dim,), at=dim, **options
                )
            found = made[before, dim, index]
            stored.add(before)
        rewriter.replace(node.result, found)
    rewriter.lay_out(live_values(graph))
    return rewriter.finish(), frozenset(stored & set(made.values()))


def _along_axes(node: Node, images: Collection[Value]) -> dict[int, Value] | None:
    """For each dim that is looked up along, the only index that it has, if all have such and one
    after the other they take fewer lookups."""
    if node.op != "index" or len(node.operands) < 3 or node.operands[0] in images:
        return None
    first, grid = node.attrs["at"], node.operands[1].shape
    assert isinstance(first, int)
    if node.attrs["dims"] != tuple(range(first, first + len(grid))):
        return None
    found: dict[int, Value] = {}
    for number, operand in enumerate(node.operands[1:]):
        expanded = operand.node
        if expanded is None or expanded.op != "expand":
            return None
        source = expanded.operands[0]
        alone: list[Dim] = [1] * len(grid)
        alone[number] = grid[number]
        if tuple(alone[len(grid) - len(source.shape) :]) != source.shape:
            return None
        found[first + number] = source
    # The axis that comes last is looked up along what is stored: to gain, it has to grow.
    return found if _growth(node, _in_order(node, found)[-1])[0] >= 1 else None


def _in_order(node: Node, axes: Iterable[int]) -> list[int]:
    return sorted(axes, key=lambda dim: _growth(node, dim))


def _growth(node: Node, dim: int) -> tuple[float, int]:
    """Return a sort key for lookups: axes by growth, the last axis first on ties."""
    have, want = node.operands[0].shape[dim], node.result.shape[dim]
    return extent([want]) / extent([have]), -dim
