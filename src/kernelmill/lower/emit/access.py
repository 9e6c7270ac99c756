"""Operands of templates: callbacks that emit code, and properties of access that decide the code
path."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, as_sym, linear_part, product
from kernelmill.graph.ir import Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, fresh_axes
from kernelmill.lower.elements.domain import AccessKind, collect
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index

Stored = Callable[[Value], "Location | None"]
"""The place of a value in memory; None if it is computed where it is read."""

ElementAt = Callable[[Dims, Dim, Dims], Index]
"""`at(batch, outer, k)`: the index of an operand's element."""


@dataclass(frozen=True)
class Matrix:
    """One side of a contraction: element [batch, outer, k] is that of `value` at `at`. `batch`,
    `outer` (m of A, n of B) and `k` are sizes."""

    value: Value
    at: ElementAt
    batch: Dims
    outer: Dim
    k: Dims

    @property
    def depth(self) -> Dim:
        """Number of elements of a row or column."""
        return product(self.k)

    def count(self, each: bool) -> Dim:
        """Return how many matrices there are if `each` batch index has its own, else 1."""
        return product(self.batch) if each else 1


class Along(StrEnum):
    """The axis of an operand along which elements are contiguous in memory."""

    OUTER = "outer"  # its rows or columns: the axis that the result has
    K = "k"  # the axis that is summed over


def contiguity(matrix: Matrix, stored: Stored) -> tuple[Along | None, bool]:
    """Return the axis along which an operand is contiguous, None for neither, and whether an
    element is read by a plain load."""
    value, position = matrix.value, len(matrix.batch)
    _, index = fresh_axes((*matrix.batch, matrix.outer, *matrix.k), "x", {})
    at_fresh = matrix.at(index[:position], index[position], index[position + 1 :])
    accesses = collect([(value, at_fresh)], stored, set())
    loads = [a.expression for a in accesses if a.kind is AccessKind.LOAD]
    direct = len(loads) == len(accesses) == 1 and not computes(value, stored)
    for along, axis in ((Along.OUTER, index[position]), (Along.K, index[-1])):
        if loads and axis != 0 and all(steps_by_one(load, axis) for load in loads):
            return along, direct
    return None, direct


def computes(value: Value, stored: Stored) -> bool:
    """Return whether reading an element does more than load it (and widen a half type)."""
    while stored(value) is None:
        node = value.node
        if node is None or (not OPS[node.op].transparent and node.op != "cast"):
            return True
        value = node.operands[0]
    return False


def converts(value: Value, stored: Stored) -> bool:
    """Return whether a cast stands between the value and memory."""
    while stored(value) is None and value.node is not None:
        if value.node.op == "cast":
            return True
        value = value.node.operands[0]
    return False


def steps_by_one(expression: Dim, axis: Dim) -> bool:
    """Return whether an address grows by one element with each step along an axis."""
    symbol = as_sym(axis)
    linear = None if symbol is None else linear_part(expression, symbol.name)
    return linear is not None and linear[0] == 1


LoadElement = Callable[[KernelBuilder, Dims, Dim, Dims, Lane | None], Register]
"""`load(builder, batch, outer, k, lane)`: one element, or with a lane the vector of elements along
the lane's symbol, which occurs in `outer` or in the last of `k`. Of type `Contraction.element`."""

PrefetchElement = Callable[[Dims, Dim, Dim], None]
"""`prefetch(batch, outer, number)`: says that the line of an element will be read soon, of that one
which is so many elements after the first of `outer`."""

StoreElement = Callable[[KernelBuilder, Dims, Dim, Dim, Lane, Register], None]
"""`store(builder, batch, m, n, lane, sums)`: the fused epilogue and the store of one vector. The
lane's symbol occurs in `n`; `sums` has the accumulator's dtype and `lane.count` lanes."""
