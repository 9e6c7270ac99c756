"""Spec of a contraction: C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n].

Operands are read through callbacks, so views, casts, gathers and fused prologues need no code in
the template. The vector axis is always n: a caller whose result is contiguous along the other axis
swaps A and B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import U8, DType
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import Along, LoadElement, Matrix, PrefetchElement, StoreElement
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.pieces import Pieces


@dataclass(frozen=True)
class Found:
    """The rows that `Contraction.rows` finds; those up to `end`, which belong to no other group,
    are zero."""

    rows: Dim
    end: Dim


FindRows = Callable[[KernelBuilder, Dims], Found]
"""`rows(builder, batch)`: the rows that a batch index has. What it emits stays in scope."""


FillPanel = Callable[[Dim, Dim, Dim, int], None]
"""`fill(begin, end, start, stride)`: columns [begin, end) of all the k for which it was prepared,
the row of k = 0 at `start` in scratch, each `stride` elements after the one before."""


class KeptInput(Protocol):
    """The input that a source of panels keeps in scratch."""

    @property
    def elements(self) -> Dim:
        """Number of elements of scratch."""
        ...

    def prepare(
        self, context: EmitContext, batch: Dims, start: Dim, depth: Depth, begin: Dim, end: Dim
    ) -> FillPanel:
        """Emit the copy of the input, at `start` in scratch, for columns [begin, end)."""
        ...


class PanelSource(Protocol):
    """Fills panels of B in scratch from some of its input, which it keeps there too.

    It may write runs of vectors, of which the last in a row of a panel goes beyond its end.
    """

    def run(self, lanes: int, vectors: int) -> int:
        """Return the vectors of the longest run, in panels of `vectors`."""
        ...

    def row_operations(self, width: int, run: int) -> int:
        """Return the vector operations for each row of a panel of that width."""
        ...

    def kept(self, depth: Dim, columns: Dim, lanes: int, run: int) -> KeptInput:
        """Return the kept input for so many indices of the first k axis and columns."""
        ...


@dataclass(frozen=True)
class AlignedRows:
    """Rows that begin on cache lines and are whole ones, one number after the other.

    buffer  the name of the buffer that has them, declared by then
    first   where a row begins in it, by the batch index and the row
    stride  elements between rows
    """

    buffer: Callable[[], str]
    first: Callable[[Dims, Dim], Dim]
    stride: int


@dataclass(frozen=True)
class Operand:
    """One side of a contraction. `outer` is m for A and n for B.

    load              reads elements; None when the operand is packed or has a source.
    contiguous_along  where neighbours are neighbours in memory, so that a vector
                      load is one load; None when along neither (a gather).
    direct            True when a load is little more than a memory access; False when it computes
                      (a prologue, padding) and is better done once than many times.
    prefetch          brings elements near; None unless they are read where they lie, the elements
                      of each `outer` together and after those of the one before.
    layout            how it was packed: what the schedule that is to read it said.
    packed            name of a buffer that holds a constant operand in panels (see `panel_shape`),
                      or in tiles (see `weights/panel_views.py`) for a unit that works on tiles,
                      the same for every batch index, or else of `each` one its own, one after the
                      other. The kernel must declare the buffer.
    panelled          for B only: what `load` computes comes from panels of `Blocked.width`.
    leaf              of such a B, the name of the buffer whose panels have a number for each of its
                      own, if there is one. The kernel must declare it.
    factored          of such a B, what `load` gives without a factor that all k with one index of
                      the first axis share, and that factor.
    source            for B only: what fills its panels in scratch.
    rows              of A with words along k: its rows, if they can be read as rows of tiles.
    half              memory has numbers of a half type, packed or not, and a product those of
                      `accumulate`.
    """

    load: LoadElement | None
    contiguous_along: Along | None = None
    direct: bool = True
    prefetch: PrefetchElement | None = None
    packed: str | None = None
    each: bool = False
    layout: object = None
    panelled: bool = False
    leaf: str | None = None
    factored: tuple[LoadElement, LoadElement] | None = None
    source: PanelSource | None = None
    rows: AlignedRows | None = None
    half: bool = False

    @property
    def panels(self) -> str | None:
        """Buffer of panels that has a number for each of the operand's, None without one."""
        return self.packed or self.leaf


def loader(operand: Operand) -> LoadElement:
    """Return the reader of an operand that is not packed. Raises ValueError without one."""
    if operand.load is None:
        raise ValueError("an operand that is not packed needs a `load`")
    return operand.load


@dataclass(frozen=True)
class Planes:
    """Operands whose numbers are sums of several: products of planes are added.

    a, b   planes of numbers, read alike and of the same layout
    pairs  numbers of the planes of A and of B that are multiplied, those of small products first
    """

    a: tuple[Operand, ...]
    b: tuple[Operand, ...]
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Exact:
    """The fallback of a contraction by pieces for numbers that are not ordinary.

    contraction  the same in f32, with neither operand packed
    pieces       says which numbers are ordinary
    magnitudes   names of the two buffers with the magnitudes of a constant B's columns
                 (see emit/pieces.py); none: they are found out
    """

    contraction: Contraction
    pieces: Pieces
    magnitudes: tuple[str, ...]


@dataclass(frozen=True)
class FourBitB:
    """B as numbers of four bits, each multiplied with a factor: B[k, n] = number * scale + offset.

    a              reads A, with k as one axis
    words          name of the buffer of words (panels, k / 8, width); see weights/four_bits.py
    width          columns of a panel
    low            what a number of four zeros stands for
    group          neighbours along k that share scale and offset
    scale, offset  read vectors of f32 along n at a k; None: 1, and 0
    bf16           A's numbers are bf16
    """

    a: LoadElement
    words: str
    width: int
    low: int
    group: int
    scale: LoadElement | None
    offset: LoadElement | None
    bf16: bool


@dataclass(frozen=True)
class Contraction:
    """The computation of a contraction. `k` may be several axes (c, kh, kw), the innermost last.

    With a `unit` for groups of so many i8 or bf16 numbers, neighbours along k are one element, a
    word: `k` counts words, and a packed operand is a buffer of the numbers. A word that is not
    whole has zeros in B, and in A too where its numbers are bf16. Where A's bytes are signed and
    the unit takes unsigned ones they are 128 more than what they stand for. A unit that works on
    tiles or blocks takes both as they are; with `split` it multiplies planes, and not `a` and `b`.
    Where these are pieces of f32, `exact` is for numbers that have none.

    With `rows` how many rows there are is found out for each batch index while running, and `m` is
    the most that all of them can have together; `likely` is what one is expected to have.

    `four_bits` is B once more, where it is made of numbers of four bits. `stores_chains` is True
    if `store` computes functions of the sums that are chains of operations (see `has_chains`).

    `accumulate` is f32, f64, i32 or i64. Any size may be symbolic, and any may be zero: with no k
    the sums are zero.
    """

    batch: Dims
    m: Dim
    n: Dim
    k: Dims
    a: Operand
    b: Operand
    accumulate: DType
    store: StoreElement
    unit: DotUnit = MULTIPLY_ADD
    rows: FindRows | None = None
    likely: Dim = 0
    stores_chains: bool = False
    split: Planes | None = None
    exact: Exact | None = None
    four_bits: FourBitB | None = None

    @property
    def of_one(self) -> Contraction:
        """The same for one batch index, where rows are found: all threads share its tasks."""
        return replace(self, rows=None, batch=(), m=self.likely)

    @property
    def planes(self) -> Planes:
        """Planes that are multiplied on tiles."""
        return self.split or Planes((self.a,), (self.b,), ((0, 0),))

    @property
    def depth(self) -> Dim:
        """Number of products in each sum."""
        return product(self.k)

    @property
    def group(self) -> int:
        """Number of neighbours along k in one element of a packed dot operand."""
        return self.unit.group

    @property
    def dot_i8(self) -> bool:
        """True if A's bytes are unsigned in place of signed ones, so that sums are shifted."""
        return self.group == 4 and self.unit.a == U8 and not self.unit.on_tiles

    @property
    def element(self) -> DType:
        """Dtype of operands in registers and in scratch."""
        return self.accumulate if self.group == 1 else self.unit.word


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
