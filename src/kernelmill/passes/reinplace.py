"""Lets a write into part of an argument touch that part only (a KV cache, a ring buffer)."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.graph.definition import Combine, OpKind
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.graph.rewriter import Rewriter


@dataclass(frozen=True)
class WriteInPlace:
    """Marks scatters into an argument that the graph updates with their result.

    For an update (x <- v), v is a scatter into x, or into the result of another such scatter. Each
    link of that chain, x too, must have no reader but the next link, so that nothing can see the
    old contents too late; and v must not leave the graph otherwise, for it would be the argument
    itself and not a copy. A slice of x that was written by joining the untouched rest of x around
    the new part is turned into a scatter first.
    """

    name: str = "write-in-place"

    def apply(self, graph: Graph) -> Graph:
        readers = graph.users()
        leaving = _leaving(graph)
        marked: set[Node] = set()
        joins: dict[Node, _Join] = {}
        for held, new in graph.updates:
            if new.node is None or leaving.count(new) != 1 or _sources(graph).count(held):
                continue
            join = _find_join(held, new.node, readers)
            if join is not None:
                joins[new.node] = join
            else:
                marked.update(_chain(held, new.node, readers, leaving))
        return _rewritten(graph, marked, joins) if marked or joins else graph


def _sources(graph: Graph) -> list[Value]:
    return [new for _, new in graph.updates]


def _leaving(graph: Graph) -> list[Value]:
    """Return the values that are returned, seen through views, or update an argument."""
    returned = [_base(result) for result in graph.results if isinstance(result, Value)]
    return returned + [_base(new) for new in _sources(graph)]


def _base(value: Value) -> Value:
    node = value.node
    while node is not None and OPS[node.op].kind is OpKind.VIEW and node.op != "concat":
        value = node.operands[0]
        node = value.node
    return value


def _chain(
    held: Value, node: Node, readers: dict[Value, list[Node]], leaving: list[Value]
) -> list[Node]:
    """Return the scatters from the update's source back to the argument; empty if interrupted."""
    links: list[Node] = []
    while OPS[node.op].kind is OpKind.SCATTER:
        links.append(node)
        source = node.operands[0]
        if readers[source] != [node] or node.operands.count(source) != 1:
            return []
        if source is held:
            return links
        if source.node is None or source in leaving:
            return []
        node = source.node
    return []


@dataclass(frozen=True)
class _Join:
    """concat(x[:start], part, x[end:]) along `dim`: x with [start, end) replaced by `part`."""

    held: Value
    part: Value
    dim: int
    start: Dim


def _find_join(held: Value, node: Node, readers: dict[Value, list[Node]]) -> _Join | None:
    if node.op != "concat":
        return None
    dim: Any = node.attrs["dim"]
    offset: Dim = 0
    written: list[tuple[Value, Dim]] = []
    untouched: list[Node] = []
    for part in node.operands:
        source = part.node
        if source is not None and _is_rest(source, held, dim, offset) and readers[part] == [node]:
            untouched.append(source)
        else:
            written.append((part, offset))
        offset = offset + part.shape[dim]
    if len(written) != 1 or not untouched or set(readers[held]) != set(untouched):
        return None
    return _Join(held, written[0][0], dim, written[0][1])


def _is_rest(node: Node, held: Value, dim: int, offset: Dim) -> bool:
    """Return whether the node is a slice of the argument that stays in place."""
    if node.op != "slice" or node.operands[0] is not held:
        return False
    return (node.attrs["dim"], node.attrs["start"], node.attrs["step"]) == (dim, offset, 1)


def _rewritten(graph: Graph, marked: set[Node], joins: dict[Node, _Join]) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node in marked:
            rewriter.keep(node, inplace=True)
        elif node in joins:
            rewriter.replace(node.result, _written(rewriter, node, joins[node]))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _written(rewriter: Rewriter, node: Node, join: _Join) -> Value:
    part = rewriter.value(join.part)
    count = part.shape[join.dim]
    index = rewriter.emit(node, "iota", dim=0, shape=(count,))
    if join.start != 0:
        start = rewriter.emit(node, "dim_value", value=join.start)
        start = rewriter.emit(node, "expand", start, shape=(count,))
        index = rewriter.emit(node, "add", index, start)
    return rewriter.emit(
        node, "index_put", join.held, part, index,
        dims=(join.dim,), at=join.dim, mode=Combine.SET, inplace=True,
    )  # fmt: skip
