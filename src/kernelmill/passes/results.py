"""Copies results that rewrites have given one piece of memory, so that each has its own."""

from __future__ import annotations

from kernelmill.graph.ir import Graph, Node, Result, Value
from kernelmill.graph.memory import memory_of
from kernelmill.graph.rewriter import Rewriter


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
