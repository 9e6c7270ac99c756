"""A schedule: how an attention is cut into tasks, blocks and register tiles."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.core.dim import Dim


@dataclass(frozen=True)
class AttentionSchedule:
    """How the work is cut. `scratch_bytes` are of one thread, `work` is nanoseconds of one core.

    tiled        many rows on a unit that multiplies tiles: queries, keys, values and weights are
                 copied into tiles of `spec.words`; tile_rows are those of one or two tiles.
    streamed     True: few rows, keys and values read in place. False: packed blocks of them.
    lanes        elements of a vector; `use_fma` tells whether a*b + c is one instruction.
    heads        query heads of a task (more than 1 only when streamed).
    rows         query rows of a task and head; `row_blocks` tasks cover all of them.
    tile_rows    rows of a register tile; `panel` and `value_panels` are its widths in vectors.
    keys         keys of a block; `single_block` tells that one block covers all of them.
    """

    streamed: bool
    lanes: int
    use_fma: bool
    heads: int
    rows: int
    row_blocks: Dim
    tile_rows: int
    panel: int
    value_panels: tuple[int, ...]
    keys: int
    single_block: bool
    tasks: Dim
    tiled: bool = False
    scratch_bytes: int = 0
    work: Dim = 0
