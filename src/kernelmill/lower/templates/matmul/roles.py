"""Roles of a product in a contraction: sizes, and the index of each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.graph.ir import Node, Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import Matrix

Places = Sequence[tuple[Dim, Dim]]
"""Positions, and the sizes that they have to be within."""


def everywhere(batch: Dims, m: Dim, k: Dims) -> Places:
    """Return no conditions: every element that an index names exists."""
    return ()


@dataclass(frozen=True)
class Roles:
    """A contraction as C[batch, m, n] = sum over k, with the value and index of each element.

    a_within  of an A whose elements are read a word at a time and as they lie: an element is zero
              unless these positions are within their sizes
    """

    batch: Dims
    m: Dim
    n: Dim
    k: Dims
    a: Value
    b: Value
    a_index: Callable[[Dims, Dim, Dims], Index]
    b_index: Callable[[Dims, Dim, Dims], Index]
    result_index: Callable[[Dims, Dim, Dim], Index]
    a_within: Callable[[Dims, Dim, Dims], Places] = everywhere

    @property
    def left(self) -> Matrix:
        """Operand A as a matrix, rows by k."""
        return Matrix(self.a, self.a_index, self.batch, self.m, self.k)

    @property
    def right(self) -> Matrix:
        """Operand B as a matrix, columns by k."""
        return Matrix(self.b, self.b_index, self.batch, self.n, self.k)


def product_roles(node: Node, first: Dim) -> Roles:
    """Return the roles of a product, or of a grouped one whose rows count from `first`."""
    return _grouped_roles(node, first) if node.op == "grouped_matmul" else _matmul_roles(node)


def _matmul_roles(node: Node) -> Roles:
    a, b = node.operands
    batch, (m, k), n = a.shape[:-2], a.shape[-2:], b.shape[-1]
    if n == 1 and m != 1:
        # A matrix times a vector: the vector axis runs along the matrix's rows instead.
        return Roles(
            batch, 1, m, (k,), b, a,
            lambda bi, _, ki: (*bi, ki[0], 0),
            lambda bi, ni, ki: (*bi, ni, ki[0]),
            lambda bi, _, ni: (*bi, ni, 0),
        )  # fmt: skip
    return Roles(
        batch, m, n, (k,), a, b,
        lambda bi, mi, ki: (*bi, mi, ki[0]),
        lambda bi, ni, ki: (*bi, ki[0], ni),
        lambda bi, mi, ni: (*bi, mi, ni),
    )  # fmt: skip


def _grouped_roles(node: Node, first: Dim) -> Roles:
    """Return the roles of a batch of matrices B and A's rows from `first` on, counted for each."""
    a, b, _ = node.operands
    return Roles(
        b.shape[:1], a.shape[0], b.shape[2], (a.shape[1],), a, b,
        lambda bi, mi, ki: (first + mi, ki[0]),
        lambda bi, ni, ki: (bi[0], ki[0], ni),
        lambda bi, mi, ni: (first + mi, ni),
    )  # fmt: skip
