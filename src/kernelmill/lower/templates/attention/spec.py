"""Spec of an attention: softmax(Q K^T * scale + mask) V for every batch index and query row.

Operands are reached through callbacks only, so permuted views of a projection, casts and slices
of a KV cache cost nothing. Semantics are those of torch's `scaled_dot_product_attention` on CPU:
a row in which every key is masked out gives zeros, a NaN among its scores makes a whole row NaN,
and the causal mask keeps key n for query m when n <= m, whatever the two lengths are.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32, DType
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.access import LoadElement as LoadWord


class MaskKind(Enum):
    """The effect of a mask on a scaled score."""

    ADD = "add"  # numbers in the accumulator's dtype, which are added
    KEEP = "keep"  # bools, True where the key takes part; a NaN stays one where it does not
    CHOOSE = "choose"  # bools, of scores that were modified: -inf where False, whatever they are


LoadEntry = Callable[[KernelBuilder, Dims, Dim, Dim, Lane | None], Value]
"""`load(builder, batch, row, column, lane)`: one entry of a matrix, or with a lane the vector of
entries along the lane's symbol, which occurs in row or column. A scalar may stand for equal
lanes."""

StoreEntry = Callable[[KernelBuilder, Dims, Dim, Dim, Lane | None, Value], None]
"""`store(builder, batch, m, e, lane, value)`: one element of the result, or a vector along e."""


ModifyScore = Callable[[KernelBuilder, Dims, Dim, Dim, Lane, Value], Value]
"""`modify(builder, batch, m, n, lane, scores)`: what scaled scores along keys become."""


@dataclass(frozen=True)
class KeyBlocks:
    """Blocks of so many `rows` and `keys`, and lists of those that have to do with each other.

    down     blocks of rows; a row beyond the last is taken for one in the last
    most     the length of each list; the mask holds for blocks of the first alone
    count    count(list, batch, row): how many entries of a list there are for a block of rows
    number   number(list, batch, row, place): the block of keys at a place of a list
    by_head  whether heads differ in their lists
    """

    rows: int
    keys: int
    down: Dim
    most: tuple[Dim, ...]
    count: Callable[[int, Dims, Dim], Value]
    number: Callable[[int, Dims, Dim, Dim], Value]
    by_head: bool


@dataclass(frozen=True)
class WordOperands:
    """Operands of bf16 in words of two neighbours, for a `unit` that multiplies tiles of them. All
    are read as `load(builder, batch, outer, (word,), lane)`, `contiguous_along` an axis.

    query, key  a word is two numbers of one query or key, which is `outer`.
    value       a word is two keys' numbers at place `outer` of their values.
    """

    unit: DotUnit
    query: Words
    key: Words
    value: Words


@dataclass(frozen=True)
class Words:
    """A reader of one operand in words, and the axis along which it is contiguous in memory."""

    load: LoadWord
    contiguous_along: Along | None


@dataclass(frozen=True)
class AttentionSpec:
    """What an attention kernel computes.

    batch        sizes of the batch dims, heads of the query last; any may be symbolic.
    rows, keys   numbers of query rows (m) and keys (n); may be symbolic, and may be zero.
    depth        length (d) of a query and of a key; an integer.
    value_depth  length (e) of a value and of a result row; an integer.
    causal       keep n <= m only.
    accumulate   f32, or f64 for f64 operands: what the callbacks give and take.
    query        query[batch, m, d].
    key, value   key[batch, n, d] and value[batch, n, e], for the *query's* batch index.
    mask         mask[batch, m, n], or None; `mask_kind` says of what.
    group        how many consecutive heads (last batch dim) share one key and value head; a factor
                 of that dim. Only a hint: keys and values are then read once for several heads.
    key_contiguous_along  K is d, OUTER is n.
    modify       what becomes of scaled scores before the mask, or None.
    later        a key n > m + later is hidden wherever the mask holds, where that is known.
    blocks       which keys rows have to do with, where that is listed.
    normaliser   a result row has an element more, the logarithm of the sum of exponentials.
    words        the operands as a unit for tiles takes them, where it is to be used for many rows.
    """

    batch: Dims
    rows: Dim
    keys: Dim
    depth: Dim
    value_depth: Dim
    scale: float
    causal: bool
    query: LoadEntry
    key: LoadEntry
    value: LoadEntry
    store: StoreEntry
    mask: LoadEntry | None = None
    mask_kind: MaskKind = MaskKind.ADD
    accumulate: DType = F32
    group: int = 1
    key_contiguous_along: Along = Along.K
    modify: ModifyScore | None = None
    later: int | None = None
    blocks: KeyBlocks | None = None
    normaliser: bool = False
    words: WordOperands | None = None
