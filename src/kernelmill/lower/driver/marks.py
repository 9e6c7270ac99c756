"""In which super-kernel range a kernel is, when its operators may be in several."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS


def launch_mark(nodes: Sequence[Node]) -> Mark:
    """The mark of the last marked operator that computes something: a kernel that does work of a
    range belongs to it. One with an operator that was taken out of its range is in none. What one
    of them waits for the kernel waits for, and what it makes with them is there when all are."""
    marks = [node.mark for node in nodes if node.mark and OPS[node.op].kind is not OpKind.VIEW]
    if not marks or any(mark.taken_out for mark in marks):
        return UNMARKED
    awaited = frozenset[int]().union(*(mark.awaited for mark in marks))
    given = frozenset[int]().union(*(mark.given for mark in marks))
    return marks[-1].with_events(awaited - given, given)
