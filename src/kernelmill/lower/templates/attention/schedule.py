"""A schedule: how an attention is cut into tasks, blocks and register tiles."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.core.dim import Dim


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """What all schedules have. `scratch_bytes` are of one thread, `work` is nanoseconds of one
    core.

    lanes         elements of a vector; `use_fma` tells whether a*b + c is one instruction.
    rows          query rows of a task and head; `row_blocks` tasks cover all of them.
    tile_rows     rows of a register tile.
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
    scratch_bytes: int = 0
    work: Dim = 0


@dataclass(frozen=True, kw_only=True)
class Streamed(_Blocks):
    """Few rows: keys and values are read in place, for so many query heads of a task."""

    heads: int


@dataclass(frozen=True, kw_only=True)
class Packed(_Blocks):
    """Many rows: blocks of keys and values are packed, keys in panels of so many vectors."""

    panel: int


@dataclass(frozen=True, kw_only=True)
class Tiled(_Blocks):
    """Many rows on a unit that multiplies tiles: queries, keys, values and weights are copied into
    tiles of `spec.words`, keys so many vectors at a time; `tile_rows` are those of one or two
    tiles."""

    panel: int


AttentionSchedule = Streamed | Packed | Tiled
