"""The rules that choose an attention's schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.isa import TILE_ROWS
from kernelmill.core.machine import Machine
from kernelmill.lower.templates.attention.candidates import AttentionCandidate, with_candidate
from kernelmill.lower.templates.attention.schedule import (
    AttentionSchedule,
    Packed,
    Streamed,
    Tiled,
)
from kernelmill.lower.templates.attention.scratch import scratch_layout
from kernelmill.lower.templates.attention.spec import AttentionSpec

ManyRows = TypeVar("ManyRows", Packed, Tiled)

FEW_ROWS = 8
"""Up to so many query rows keys and values are read in place: each is used too rarely to pack."""

_TILE = {32: (4, 4), 16: (6, 2)}
"""Rows and vectors across the largest register tile, by the number of registers. With 32 a third is
left for constants of the exponential, which LLVM keeps there even while the tile is summed up."""

_BLOCK_ROWS = 128
_BLOCK_KEYS = 256
_ENOUGH_TASKS = 8
_ENOUGH_STREAMS = 4
"""The same where keys and values stream: to read them once for several heads is worth more than
tasks for more threads."""

_PANEL_SPEED = {4: 1.0, 3: 0.95, 2: 0.85}
"""Speed of a register tile of so many vectors across, relative to the widest."""


def plan_attention(
    spec: AttentionSpec,
    machine: Machine,
    candidate: AttentionCandidate | None = None,
    rows_at_a_time: int = 0,
) -> AttentionSchedule:
    """The schedule for this attention on this processor, with the candidate's sizes. Depends
    on nothing else.

    With `rows_at_a_time` that for a symbolic number of rows which is small: so many at a time.
    Raises UnsupportedError when a depth is symbolic or zero.
    """
    if not (isinstance(spec.depth, int) and isinstance(spec.value_depth, int)):
        raise UnsupportedError(f"attention over symbolic depths {spec.depth}, {spec.value_depth}")
    if spec.depth == 0 or spec.value_depth == 0:
        raise UnsupportedError("attention over vectors without elements")
    if isinstance(spec.rows, int) and spec.rows <= FEW_ROWS:
        rows_at_a_time = max(spec.rows, 1)
    tile = _TILE[machine.isa.vector_registers]
    lanes = machine.isa.lanes(spec.accumulate)
    row = (spec.depth + spec.value_depth) * spec.accumulate.bytes
    most = max(1, min(_BLOCK_KEYS, machine.l2_bytes // 2 // row))
    schedule: AttentionSchedule
    if rows_at_a_time:
        schedule = _streamed(spec, lanes, tile, machine.isa.has_fma, rows_at_a_time)
    elif spec.words is not None:
        few = isinstance(spec.rows, int) and spec.rows <= TILE_ROWS
        tile = (TILE_ROWS if few else 2 * TILE_ROWS), 2
        schedule = _packed(Tiled, spec, lanes, tile, machine.isa.has_fma, most)
    else:
        schedule = _packed(Packed, spec, lanes, tile, machine.isa.has_fma, most)
    if candidate is not None:
        schedule = with_candidate(schedule, spec, candidate)
    scratch = scratch_layout(spec, schedule).elements * spec.accumulate.bytes
    work = _work(spec, isinstance(schedule, Streamed), lanes, machine)
    return replace(schedule, scratch_bytes=scratch, work=work)


def _streamed(
    spec: AttentionSpec, lanes: int, tile: tuple[int, int], use_fma: bool, rows: int
) -> Streamed:
    row_blocks = ceildiv(spec.rows, rows)
    heads = _heads_together(spec, rows)
    keys = _block_keys(spec.keys, lanes, _BLOCK_KEYS)
    # Sums stay in registers while the values stream past.
    width = max(1, min(2 * tile[1], tile[0] * tile[1] // (heads * rows)))
    return Streamed(
        lanes=lanes, use_fma=use_fma, heads=heads, rows=rows, row_blocks=row_blocks,
        tile_rows=heads * rows, value_panels=_split(spec.value_depth, lanes, width),
        keys=keys, single_block=_covers(keys, spec.keys),
        tasks=product(spec.batch) // heads * row_blocks,
    )  # fmt: skip


def _packed(
    kind: type[ManyRows], spec: AttentionSpec, lanes: int, tile: tuple[int, int], use_fma: bool,
    most: int,
) -> ManyRows:  # fmt: skip
    """`most` keys and values of a block stay in the second-level cache."""
    tile_rows, widest = tile
    rows, panel = _block_rows(spec, tile_rows), _panel(spec.keys, lanes, widest)
    keys, row_blocks = _block_keys(spec.keys, panel * lanes, most), ceildiv(spec.rows, rows)
    return kind(
        lanes=lanes, use_fma=use_fma, rows=rows, row_blocks=row_blocks,
        tile_rows=tile_rows, panel=panel, value_panels=_split(spec.value_depth, lanes, widest),
        keys=keys, single_block=_covers(keys, spec.keys), tasks=product(spec.batch) * row_blocks,
    )  # fmt: skip


def _heads_together(spec: AttentionSpec, rows: int) -> int:
    """The largest part of a group that keeps rows few and leaves enough tasks."""
    tasks = product(spec.batch)
    for heads in range(min(spec.group, FEW_ROWS // rows), 1, -1):
        starved = isinstance(tasks, int) and tasks // heads < min(_ENOUGH_STREAMS, tasks)
        if spec.group % heads == 0 and not starved:
            return heads
    return 1


def _block_rows(spec: AttentionSpec, tile_rows: int) -> int:
    """Rows of a task: many, so that packing is cheap, but not so many that threads stay idle."""
    if not isinstance(spec.rows, int):
        return _BLOCK_ROWS // tile_rows * tile_rows
    blocks, outer = _ceil_div(spec.rows, _BLOCK_ROWS), product(spec.batch)
    while isinstance(outer, int) and outer * blocks < _ENOUGH_TASKS:
        if spec.rows // (blocks * 2) < 4 * tile_rows:
            break
        blocks *= 2
    return _ceil_div(_ceil_div(spec.rows, blocks), tile_rows) * tile_rows


def _panel(keys: Dim, lanes: int, widest: int) -> int:
    """Vectors across a score tile: wide ones are fast, narrow ones waste less at the end."""
    if not isinstance(keys, int):
        return 2
    vectors = _ceil_div(keys, lanes)

    def cost(width: int) -> float:
        return _ceil_div(vectors, width) * width / _PANEL_SPEED[width]

    return min((width for width in _PANEL_SPEED if width <= widest), key=cost)


def _block_keys(keys: Dim, step: int, most: int) -> int:
    """A block's length: a multiple of `step`, and such that blocks come out about equal."""
    if not isinstance(keys, int):
        return max(1, most // step) * step
    blocks = max(1, _ceil_div(keys, most))
    return max(1, _ceil_div(keys, blocks * step)) * step


def _covers(block: int, keys: Dim) -> bool:
    return isinstance(keys, int) and keys <= block


def _split(elements: Dim, lanes: int, most: int) -> tuple[int, ...]:
    """The vectors of a row as a sum of about equal parts, none above `most`."""
    assert isinstance(elements, int)
    vectors = _ceil_div(elements, lanes)
    parts = _ceil_div(vectors, most)
    return tuple((vectors + i) // parts for i in range(parts))


def _ceil_div(whole: int, part: int) -> int:
    return -(-whole // part)


def _work(spec: AttentionSpec, streamed: bool, lanes: int, machine: Machine) -> Dim:
    """Multiply-adds, an exponential counting as 16 of them, and keys and values that are streamed
    from a cache further out or memory."""
    pairs, depths = product(spec.batch) * spec.keys, spec.depth + spec.value_depth
    scores = ceildiv(pairs * spec.rows, 2) if spec.causal else pairs * spec.rows
    work = ceildiv(scores * (depths + 16), machine.products(lanes))
    if streamed:
        bytes = pairs * depths * spec.accumulate.bytes
        work = work + ceildiv(bytes, machine.stream_bytes * spec.group)
    return work
