"""In which super-kernel range a kernel is, when its operators may be in several."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.config.ranges import TAKEN_OUT, read_mark, with_events
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS


def launch_mark(nodes: Sequence[Node]) -> str:
    """The mark of the last marked operator that computes something: a kernel that does work of a
    range belongs to it. One with an operator that was taken out of its range is in none. What one
    of them waits for the kernel waits for, and what it makes with them is there when all are."""
    marks = [node.scope for node in nodes if node.scope and OPS[node.op].kind is not OpKind.VIEW]
    if TAKEN_OUT in marks or not marks:
        return ""
    read = [read_mark(mark) for mark in marks]
    awaited = frozenset[int]().union(*(mark.awaited for mark in read))
    given = frozenset[int]().union(*(mark.given for mark in read))
    return with_events(marks[-1], awaited - given, given)
