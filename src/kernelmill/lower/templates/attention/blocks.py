"""Base of the schedules of an attention: tasks of query rows, and blocks of keys.

A schedule is a class in its own file, with its fields, its choice (`plan`), its scratch, its other
candidates and its code (`emit`). `template.py` lists all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Self

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.templates.attention.spec import (
    AttentionSpec,
    block_keys,
    block_rows,
    covers,
    neighbouring_keys,
    panel_vectors,
    round_up,
    split,
    within_blocks,
)

_BLOCK_KEYS = 256


@dataclass(frozen=True)
class Regions:
    """The copies of operands that a schedule keeps in scratch: elements of each region of
    ScratchLayout, for so many rows; `width` keys lie side by side."""

    rows: int
    width: int
    queries: int
    keys: int = 0
    values: int = 0
    weights: int = 0


@dataclass(frozen=True, kw_only=True)
class AttentionBlocks(ABC):
    """The base of all schedules of an attention. `scratch_bytes` are of one thread, `work` is
    nanoseconds of one core.

    lanes         elements of a vector; `use_fma` tells whether a*b + c is one instruction, and
                  `by_lane` whether it takes a lane of a vector for all lanes.
    rows          query rows of a task and head; `row_blocks` tasks cover all of them.
    tile_rows     rows of a register tile; the last of a task may have some of the next task's.
    value_panels  widths, in vectors, of the register tiles of weighted values.
    keys          keys of a block; `single_block` tells that one block covers all of them.
    """

    lanes: int
    use_fma: bool
    rows: int
    row_blocks: Dim
    tile_rows: int
    value_panels: tuple[int, ...]
    keys: int
    single_block: bool
    tasks: Dim
    by_lane: bool = False
    scratch_bytes: int = 0
    work: Dim = 0

    @classmethod
    @abstractmethod
    def plan(cls, spec: AttentionSpec, machine: Machine, rows_at_a_time: int) -> Self | None:
        """Plan the schedule for this attention on this processor, with `rows_at_a_time` unless 0;
        None if another class is the one."""

    @property
    def heads_together(self) -> int:
        """Number of query heads of a task."""
        return 1

    @abstractmethod
    def regions(self, spec: AttentionSpec) -> Regions:
        """Return the regions of scratch for copies of the operands."""

    @abstractmethod
    def with_sizes(self, spec: AttentionSpec, rows: int, keys: int) -> Self:
        """Return the schedule with these rows of a task and keys of a block, multiples of
        `tile_rows` and `key_step`."""

    @property
    @abstractmethod
    def row_choices(self) -> AbstractSet[int]:
        """Numbers of rows of a task that are worth trying."""

    @property
    @abstractmethod
    def key_step(self) -> int:
        """Number that the keys of a block are a multiple of."""

    def estimated_work(self, spec: AttentionSpec, machine: Machine) -> Dim:
        """Return nanoseconds of one core: multiply-adds, an exponential counting as 16 of them."""
        pairs, depths = product(spec.batch) * spec.keys, spec.depth + spec.value_depth
        hides = spec.causal or spec.blocks is not None
        scores = ceildiv(pairs * spec.rows, 2) if hides else pairs * spec.rows
        return ceildiv(scores * (depths + 16), machine.products(self.lanes))

    @abstractmethod
    def emit(self, builder: KernelBuilder, spec: AttentionSpec, batch: Dims, first: Dim) -> None:
        """Emit the query rows of one task, from `first` on; `batch` is that of its first head."""


@dataclass(frozen=True, kw_only=True)
class PanelBlocks(AttentionBlocks):
    """Many rows: blocks of keys and values are copied, keys in panels of so many vectors."""

    panel: int

    @classmethod
    def cut(cls, spec: AttentionSpec, machine: Machine, tile_rows: int, widest: int) -> Self:
        """Plan register tiles of so many rows and vectors at most. Keys and values of a block stay
        in the second-level cache."""
        lanes = machine.isa.lanes(spec.accumulate)
        row = (spec.depth + spec.value_depth) * spec.accumulate.bytes
        assert isinstance(row, int)
        most = max(1, min(_BLOCK_KEYS, machine.l2_bytes // 2 // row))
        rows, near = within_blocks(spec, block_rows(spec, tile_rows)), neighbouring_keys(spec)
        panel = panel_vectors(near, lanes, widest)
        keys, row_blocks = block_keys(near, panel * lanes, most), ceildiv(spec.rows, rows)
        return cls(
            lanes=lanes, use_fma=machine.isa.has_fma, rows=rows, row_blocks=row_blocks,
            tile_rows=tile_rows, panel=panel, value_panels=split(spec.value_depth, lanes, widest),
            keys=keys, single_block=covers(keys, spec),
            tasks=product(spec.batch) * row_blocks, by_lane=machine.isa.has_lane_operand,
        )  # fmt: skip

    def with_sizes(self, spec: AttentionSpec, rows: int, keys: int) -> Self:
        """Return the schedule with these sizes."""
        rows = within_blocks(spec, rows)
        blocks = ceildiv(spec.rows, rows)
        return replace(
            self, rows=rows, row_blocks=blocks, tasks=product(spec.batch) * blocks,
            keys=keys, single_block=covers(keys, spec),
        )  # fmt: skip

    @property
    def row_choices(self) -> AbstractSet[int]:
        """The rows, half and double of them."""
        half, double = self.rows // 2, self.rows * 2
        return {self.rows, round_up(half, self.tile_rows), round_up(double, self.tile_rows)}

    @property
    def key_step(self) -> int:
        """Whole panels."""
        return self.panel * self.lanes


@dataclass(frozen=True)
class AttentionScratch:
    """Offsets and row lengths in elements of the accumulator's dtype; vectors never straddle rows.

    queries  [rows][depth]             scaled query rows, padded to whole vectors
    keys     [panels][depth][width]    a block of keys transposed, `width` side by side
    values   [keys][value_depth]       a block of values
    scores   [tile rows][keys]         scores, then their exponentials, of one register tile's rows
    sums     [rows][value_depth]       weighted sums of values so far
    peaks, totals  [rows]              largest score, and sum of exponentials relative to it
    factors  [tile rows]               what older sums of a tile's rows are scaled by
    weights  [tile][keys / 32]         of a tiled schedule, the exponentials in tiles of bf16

    In a tiled schedule queries, keys and values are in tiles too, each TILE_WORDS elements:
    [row tile][tile along the depth], [tile of keys][tile along the depth] and
    [tile along the value's depth][tile along the keys].
    """

    query_row: int
    value_row: int
    score_row: int
    width: int
    queries: int
    keys: int
    values: int
    scores: int
    sums: int
    peaks: int
    totals: int
    factors: int
    weights: int
    elements: int


def scratch_layout(spec: AttentionSpec, schedule: AttentionBlocks) -> AttentionScratch:
    """Lay the regions out one after another, each at a whole vector."""
    assert isinstance(spec.depth, int) and isinstance(spec.value_depth, int)
    lanes, kept = schedule.lanes, schedule.regions(spec)
    query_row, value_row = round_up(spec.depth, lanes), round_up(spec.value_depth, lanes)
    sizes = (
        kept.queries,
        kept.keys,
        kept.values,
        schedule.tile_rows * schedule.keys,
        kept.rows * value_row,
        round_up(kept.rows, lanes),
        round_up(kept.rows, lanes),
        round_up(schedule.tile_rows, lanes),
        kept.weights,
    )
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    return AttentionScratch(query_row, value_row, schedule.keys, kept.width, *offsets)
