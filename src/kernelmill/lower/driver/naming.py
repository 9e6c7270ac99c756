"""Type names of kernels in reports and in kernel_meta: "Square", "MatMulAddGelu"."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.graph.definition import OpDef, OpKind
from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS

MOST_PARTS = 4
"""A fused kernel is named after so many operators; the rest are in its report."""


def kernel_type(nodes: Sequence[Node]) -> str:
    """Return a kernel's operators in CamelCase, the heaviest first; "Copy" for views only."""
    computing = [n for n in nodes if _computes(OPS[n.op])]
    ranked = sorted(computing, key=lambda n: _RANK.get(OPS[n.op].kind, 9))
    parts: list[str] = []
    for node in ranked:
        part = operator_name(node)
        if part not in parts:
            parts.append(part)
    if not parts:
        return "Copy"
    return "".join(parts[:MOST_PARTS]) + ("Etc" if len(parts) > MOST_PARTS else "")


_RANK = {
    OpKind.CONTRACT: 0, OpKind.ATTENTION: 0, OpKind.SCAN: 1, OpKind.WHOLE: 1, OpKind.SCATTER: 1,
    OpKind.REDUCE: 2, OpKind.GATHER: 3,
}  # fmt: skip


def _computes(definition: OpDef) -> bool:
    return not definition.transparent and definition.kind is not OpKind.SOURCE


def operator_name(node: Node) -> str:
    """Return the operator's name in CamelCase; a product of a value with itself is a Square."""
    if node.op == "mul" and node.operands[0] is node.operands[1]:
        return "Square"
    return OPS[node.op].title


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
