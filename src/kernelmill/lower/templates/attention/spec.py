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
from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import F32, DType
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
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
    """The computation of an attention kernel.

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


FEW_ROWS = 8
"""Most query rows with which keys and values are read in place: each is used too rarely to pack."""

_TILE = {32: (4, 4), 16: (6, 2)}
"""Rows and vectors across the largest register tile, by the number of registers. With 32 a third is
left for constants of the exponential, which LLVM keeps there even while the tile is summed up."""

_MORE_ROWS, _ENOUGH_SUMS = 6, 12
"""Rows where those of the largest tile make fewer sums in the narrower one of its two products:
each waits for the one before."""

_BLOCK_ROWS = 128
_FEW_KEYS = 1024
"""Blocks of more keys are probably longer than an unknown number of them."""
_ENOUGH_TASKS = 8

_PANEL_SPEED = {4: 1.0, 3: 0.95, 2: 0.85}
"""Speed of a register tile of so many vectors across, relative to the widest."""


def register_tile(machine: Machine) -> tuple[int, int]:
    """Return the rows and vectors across of the largest register tile."""
    return _TILE[machine.isa.vector_registers]


def packed_tile(spec: AttentionSpec, machine: Machine) -> tuple[int, int]:
    """Return the rows and vectors across of the register tile where keys and values are packed."""
    rows, widest = register_tile(machine)
    lanes = machine.isa.lanes(spec.accumulate)
    values = max(split(spec.value_depth, lanes, widest))
    narrower = min(values, panel_vectors(neighbouring_keys(spec), lanes, widest))
    # Where a multiply-add takes a lane, registers hold vectors of the rows as well.
    if rows * narrower < _ENOUGH_SUMS and not machine.isa.has_lane_operand:
        rows = _MORE_ROWS
    return rows, widest


def block_rows(spec: AttentionSpec, tile_rows: int) -> int:
    """Choose the rows of a task: many make packing cheap, too many leave threads idle."""
    if not isinstance(spec.rows, int):
        return round_up(_BLOCK_ROWS, tile_rows)
    blocks, outer = _ceil_div(spec.rows, _BLOCK_ROWS), product(spec.batch)
    while isinstance(outer, int) and outer * blocks < _ENOUGH_TASKS:
        if spec.rows // (blocks * 2) < 4 * tile_rows:
            break
        blocks *= 2
    return _ceil_div(_ceil_div(spec.rows, blocks), tile_rows) * tile_rows


def within_blocks(spec: AttentionSpec, rows: int) -> int:
    """Return the most rows up to this number of which no task has some in two blocks of rows."""
    blocks = spec.blocks
    if blocks is None or (isinstance(spec.rows, int) and spec.rows <= blocks.rows):
        return rows
    return next(n for n in range(min(rows, blocks.rows), 0, -1) if blocks.rows % n == 0)


def neighbouring_keys(spec: AttentionSpec) -> Dim:
    """Return the largest number of keys that are processed in sequence."""
    blocks = spec.blocks
    if blocks is None or (isinstance(spec.keys, int) and spec.keys <= blocks.keys):
        return spec.keys
    return blocks.keys if isinstance(spec.keys, int) or blocks.keys <= _FEW_KEYS else spec.keys


def panel_vectors(keys: Dim, lanes: int, widest: int) -> int:
    """Choose the vectors across a score tile: wide ones are fast, narrow ones waste less."""
    if not isinstance(keys, int):
        return 2
    vectors = _ceil_div(keys, lanes)

    def cost(width: int) -> float:
        return _ceil_div(vectors, width) * width / _PANEL_SPEED[width]

    return min((width for width in _PANEL_SPEED if width <= widest), key=cost)


def block_keys(keys: Dim, step: int, most: int) -> int:
    """Choose a block's keys: a multiple of `step`, such that blocks come out about equal."""
    if not isinstance(keys, int):
        return max(1, most // step) * step
    blocks = max(1, _ceil_div(keys, most))
    return max(1, _ceil_div(keys, blocks * step)) * step


def covers(block: int, spec: AttentionSpec) -> bool:
    """Return whether one block has all keys, of every row."""
    return spec.blocks is None and isinstance(spec.keys, int) and spec.keys <= block


def split(elements: Dim, lanes: int, most: int) -> tuple[int, ...]:
    """Split the vectors of a row into about equal parts, none above `most`."""
    assert isinstance(elements, int)
    vectors = _ceil_div(elements, lanes)
    parts = _ceil_div(vectors, most)
    return tuple((vectors + i) // parts for i in range(parts))


def _ceil_div(whole: int, part: int) -> int:
    return -(-whole // part)


def round_up(size: int, step: int) -> int:
    """Return the next multiple of `step`, at least one."""
    return max(1, _ceil_div(size, step)) * step
