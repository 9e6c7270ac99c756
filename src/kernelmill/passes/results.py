"""Memory of results: rewritten ones get their own, and writes into a part of an argument only
change that part.
"""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.graph.builder import Rewriter
from kernelmill.graph.effects import memory_of
from kernelmill.graph.ir import Combine, Graph, Node, OpKind, Result, Value
from kernelmill.graph.ops import OPS


def apart(before: Graph, after: Graph) -> Graph:
    """Return `after` with copies where results share memory and those of `before` do not.

    A result that is an argument, or a view of one, is that argument's memory, and one value twice
    is one tensor twice. So what lies in memory of its own must not become an argument (x * 1), nor
    the same as another one (x + 1 twice), whether it is returned itself or as views of it: who
    writes to the one would find it in the other. What an argument is updated with may lie in the
    argument, where it is read as ATen's views alone.
    """
    copied = _copied(before, after)
    return _Copier(after, copied).run(before) if copied else after


def _copied(before: Graph, after: Graph) -> set[Value]:
    """Return the values of `before` that need memory of their own. The first that has a value's
    memory keeps it."""
    keeper: dict[Value, Value] = {}
    found: set[Value] = set()
    were, are = ({new for _, new in graph.updates} for graph in (before, after))
    for old, new in _values(before, after):
        was, is_now = memory_of(old), memory_of(new)
        updates_now = new is not is_now and is_now in are and was not in were
        became_argument = was.node is not None and (is_now.node is None or updates_now)
        if became_argument or keeper.setdefault(is_now, was) is not was:
            found.add(was)
    return found


def _values(before: Graph, after: Graph) -> list[tuple[Value, Value]]:
    pairs = zip(before.results, after.results, strict=True)
    return [(a, b) for a, b in pairs if isinstance(a, Value) and isinstance(b, Value)]


class _Copier:
    """A rewrite that gives values of the first graph copies of their counterparts in the second."""

    def __init__(self, after: Graph, copied: set[Value]) -> None:
        self.after, self.copied = after, copied
        self.rewriter = Rewriter(after)
        self.copies: dict[Value, Value] = {}

    def run(self, before: Graph) -> Graph:
        """Return the second graph with the copies, read by the views of them that are returned."""
        readers: dict[Node, Value] = {}
        for old, new in _values(before, self.after):
            reader = _reader_of_memory(old, new)
            if memory_of(old) in self.copied and reader is not None:
                readers[reader] = memory_of(old)
        for node in self.after.nodes:
            if node in readers:
                self._keep_reading(node, readers[node])
            else:
                self.rewriter.keep(node)
        pairs = list(zip(before.results, self.after.results, strict=True))
        results = [self._result(old, new) for old, new in pairs]
        made = self.rewriter.finish()
        made.results = results
        return made

    def _keep_reading(self, node: Node, old: Value) -> None:
        """Keep a view, of the copy in place of its first operand."""
        source = node.operands[0]
        kept = self.rewriter.value(source)
        self.rewriter.replace(source, self._copy(old, source))
        self.rewriter.keep(node)
        self.rewriter.replace(source, kept)

    def _result(self, old: Result, new: Result) -> Result:
        if not isinstance(new, Value):
            return new
        if isinstance(old, Value) and old in self.copied:
            return self._copy(old, new)
        return self.rewriter.value(new)

    def _copy(self, old: Value, new: Value) -> Value:
        """Return a copy of the counterpart of `old`, with the memory strides that `old` had."""
        if old not in self.copies:
            like = new.node or Node("layout", (), {})
            source = self.rewriter.value(new)
            self.copies[old] = self.rewriter.emit(
                like, "layout", source, strides=old.type.memory_strides
            )
        return self.copies[old]


def _reader_of_memory(old: Value, new: Value) -> Node | None:
    """Return the ATen call behind `new` that reads the memory that `old` is a view of, as many
    views behind `new` as that is behind `old`; None where `old` is no view."""
    reader: Node | None = None
    while memory_of(old) is not old and memory_of(new) is not new:
        assert old.node is not None and new.node is not None
        reader = new.node
        old, new = old.node.operands[0], new.node.operands[0]
    return reader


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
