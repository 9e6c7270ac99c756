"""Bounds on the code of one kernel, so that lowering stays linear in the size of the graph.

What is computed where it is read is written out for each index at which it is read, and each view
that shows one of several values adds conditions around what is below it: without a bound, chains of
joins, shifts and slices would double the code at each step, and long chains of anything would make
kernels that take ever longer to compile. A value that would take a kernel beyond the bounds is
stored; what is usual stays far below them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kernelmill.core.dim import Dim, Expr
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.views import Index, written_over

MOST_CODE = 160
"""Of one kernel, in elements computed: `code` adds up to it."""

MOST_EPILOGUE = 48
"""Pointwise nodes that follow one contraction in its kernel."""

MOST_DEPTH = 400
"""Calls within calls of the emitter, which asks for what an element is made of: see `depth`."""

_OF_KIND = {OpKind.POINTWISE: 1, OpKind.GATHER: 4, OpKind.REDUCE: 16}
"""A reduction is a pass of its own, which computes again what is not kept."""

_OF_CASE = 2
"""Of each place that an element may come from: conditions, a mask and a choice."""

_MOST_CASES = 16
"""Code that a view may add to one kernel by being read at more places than one."""

_MOST_INDEX = 160
"""Characters of the symbols and divisions in one index: reshapes of reshapes nest divisions."""


def code(node: Node) -> int:
    """Return the code size of an element of this node, each time that it is computed."""
    if node.op == "concat":
        return _OF_CASE * (len(node.operands) if written_over(node) is None else 2)
    return _code_of(node.op)


@cache
def _code_of(op: str) -> int:
    """Return the `code` of all operators but concat; a view that fills has two values."""
    definition = OPS[op]
    if definition.transparent:
        return _OF_CASE if definition.fills else 0
    return _OF_KIND.get(definition.kind, 0)


def depth(node: Node) -> int:
    """Return the nesting depth of calls from an element of this node to one of its operands."""
    return 4 if OPS[node.op].kind is OpKind.POINTWISE else 10 if code(node) else 5


def fits(node: Node, held: int, indices: Iterable[Index | None], times: int) -> bool:
    """Return whether a kernel that holds `held` code may compute a node too: at these indices, and
    written out `times` times."""
    each = code(node)
    if OPS[node.op].transparent:
        if (times - 1) * each > _MOST_CASES or any(map(_is_long, indices)):
            return False
        if each == 0:
            return True
    return held + times * each <= MOST_CODE


class Blocks:
    """Blocks of code in a kernel, by number, each in another one; 0 is the kernel's own.

    What one of several values that a view may show is made of is computed in a block of its own,
    and computed again in the next: only what the blocks around have is known inside.
    """

    def __init__(self) -> None:
        self._around: list[int] = [0]
        self._known: list[tuple[Value, Index] | None] = [None]

    def inside(self, block: int, known: tuple[Value, Index] | None) -> int:
        """Add a block inside this one; before it an element is computed that it may need."""
        self._around.append(block)
        self._known.append(known)
        return len(self._around) - 1

    def knows(self, block: int, value: Value, index: Index | None) -> bool:
        """Return whether an element is already computed when this block begins."""
        while block:
            if self._known[block] == (value, index):
                return True
            block = self._around[block]
        return False


def _is_long(index: Index | None) -> bool:
    return index is not None and sum(map(_length, index)) > _MOST_INDEX


def _length(dim: Dim) -> int:
    atoms: Iterable[str] = ()
    if isinstance(dim, Expr):
        atoms = (atom for monomial, _ in dim.terms for atom in monomial)
    return sum(map(len, atoms))
