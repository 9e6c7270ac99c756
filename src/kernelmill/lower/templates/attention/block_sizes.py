"""Block sizes of an attention: rows, keys and vectors."""

from __future__ import annotations

from kernelmill.core.dim import Dim, product
from kernelmill.core.target.machine import Machine
from kernelmill.lower.templates.attention.spec import AttentionSpec

FEW_ROWS = 8
"""Up to so many query rows keys and values are read in place: each is used too rarely to pack."""

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
