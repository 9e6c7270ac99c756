"""The rules that choose a schedule.

All follow from the target's vector width and caches, and from the sizes where those are known.
Costs are in cycles of a core that does two vector multiply-adds and two vector loads a cycle with
four cycles latency, which fits current cores with AVX2, AVX-512 or NEON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product as pairs
from math import prod

from kernelmill.core.dim import Dim, floordiv, minimum, product
from kernelmill.core.target import Target
from kernelmill.lower.contract.schedule import Schedule, parts
from kernelmill.lower.contract.spec import Contraction, Operand, guess
from kernelmill.lower.contract.strip_shape import strip_shape
from kernelmill.lower.contract.tiling import Tiling
from kernelmill.lower.cycles import (
    CYCLES_PER_NANOSECOND,
    STREAM_BYTES,
    TASK_CYCLES,
    THREADS,
)  # fmt: skip

_OPEN = Tiling()

_ROWS = {32: (16, 12, 8, 6), 16: (10, 6, 4, 2)}
"""Rows of the largest register tile of 1, 2, 3 and 4 vectors, by the number of registers: its sums,
one row of B and a broadcast element of A stay in registers."""

_MOST_ROWS = max(_ROWS[32])

_DIRECT_ROWS = 8
"""Most rows when A is read where it lies: rows a page apart share a cache set of 8 to 12 ways."""

DOT_ROWS = 4
"""Most rows for which summing along k is cheaper than turning B round."""

_SLIDE_SUMS = 4
"""Most rows for which windows are summed where they lie in a strip."""

_SLIDE_TAPS = 64
_SLIDE_PRODUCTS = 400
"""Most taps of such a window, and most products that are written out."""

_SLIDE_PIXELS = 2**14
_SLIDE_TASKS = 32
"""Strips of that size, and that number of tasks, are aimed at."""

_INLINE_DEPTH = 32
"""Up to this depth the sums' way through scratch would be felt."""

_STRIDED_DEPTH = 1024
"""Most k whose elements of A may be a row apart each: that is as many cache lines in use."""

_SERIAL_CYCLES = 4_000
"""Contractions below this are one task: less is not worth meeting for, even in a super kernel."""


def plan_contraction(spec: Contraction, target: Target, given: Tiling = _OPEN) -> Schedule:
    """The schedule for this contraction on this processor, with what is given. Depends on nothing
    else."""
    if spec.rows is not None:
        # As for one batch index, whose tasks all threads share.
        one = replace(spec, rows=None, batch=(), m=spec.likely)
        schedule = plan_contraction(one, target, given)
        return replace(schedule, work=_grouped_work(spec, schedule.lanes))
    lanes = target.vector_lanes(spec.accumulate)
    dot = _sums_along_depth(spec)
    slide_rows, slide_together = _choose_slide(spec, target, lanes)
    vectors = 1 if dot else given.vectors or _choose_vectors(spec, target, lanes)
    limit = min(_row_limit(spec.a, target, vectors), given.rows or _MOST_ROWS)
    rows = guess(spec.m) if dot or slide_rows else _choose_rows(spec.m, limit, vectors)
    one_tile = isinstance(spec.m, int) and spec.m <= rows
    schedule = Schedule(
        lanes=lanes,
        rows=rows,
        vectors=vectors,
        pack_a=spec.a.packed is None and not spec.a.direct and not dot and not slide_rows,
        pack_b=spec.b.packed is None and not dot and _must_pack_b(spec, target, one_tile),
        run_vectors=_run_vectors(spec, lanes, vectors),
        dot=dot,
        slide_rows=slide_rows,
        slide_together=slide_together,
        inline=rows == 1
        and one_tile
        and not dot
        and spec.words == 1
        and guess(spec.depth) <= _INLINE_DEPTH,
        fused=target.has_fma and spec.accumulate.is_float,
        work=_work(spec, lanes),
    )
    if dot or one_tile:
        return _with_blocks(schedule, spec, given)
    block = given.depth_block or _choose_depth_block(spec, target, schedule.panel_stride)
    schedule = _with_blocks(replace(schedule, depth_block=block), spec, given)
    return replace(
        schedule,
        ahead=_looks_ahead(schedule, spec, target),
        rows_ahead=_expects_rows(schedule, spec, target),
    )


# ---- the register tile ----------------------------------------------------------------------


def _sums_along_depth(spec: Contraction) -> bool:
    few = isinstance(spec.m, int) and not spec.bytewise and 0 < spec.m <= DOT_ROWS
    loose = spec.a.packed is None and spec.b.packed is None and not spec.b.panelled
    return few and loose and spec.b.contiguous_along == "k" and guess(spec.k[-1]) >= 16


def _choose_slide(spec: Contraction, target: Target, lanes: int) -> tuple[int, int]:
    """Output rows of a task, and how many at a time, where so few sums share a window that a panel
    would not pay; else (0, 0)."""
    window = spec.b.window
    if window is None or not isinstance(spec.m, int) or not 0 < spec.m <= _SLIDE_SUMS:
        return 0, 0
    taps = guess(spec.k[1]) * guess(spec.k[2])
    known = all(isinstance(size, int) for size in (*spec.k, *window.outputs))
    if not known or taps > _SLIDE_TAPS or spec.n == 0:
        return 0, 0
    height, batch = guess(window.outputs[0]), prod(guess(size) for size in spec.batch)
    one_row = strip_shape(spec, window, spec.k[0], 1, lanes, 0)
    most = max(_SLIDE_PIXELS // guess(one_row.elements), parts(height * batch, _SLIDE_TASKS), 1)
    rows = max(count for count in range(1, min(most, height) + 1) if height % count == 0)
    sums = min(registers(target) // 4, _SLIDE_PRODUCTS // taps)
    together = max(1, sums // spec.m)
    return rows, max(count for count in range(1, together + 1) if rows % count == 0)


def _row_limit(a: Operand, target: Target, vectors: int) -> int:
    limit = _ROWS[registers(target)][vectors - 1]
    return limit if a.packed is not None else min(limit, _DIRECT_ROWS)


def registers(target: Target) -> int:
    """Vector registers of the processor."""
    return 16 if target.is_x86 and target.vector_bits < 512 else 32


def _tile_cycles(rows: int, vectors: int) -> float:
    """Cycles of a register tile for each k: multiply-adds or loads, whichever are more."""
    return max(rows * vectors, rows + vectors) / 2


def _choose_vectors(spec: Contraction, target: Target, lanes: int) -> int:
    """Fewest cycles for a row of C. A packed B has one width whatever m is, to be shared."""
    if not isinstance(spec.n, int):
        return 2
    count = parts(spec.n, lanes)
    shared = spec.b.packed is not None or spec.b.panelled
    most = max(_ROWS[32]) if shared else guess(spec.m)

    streamed = spec.accumulate.bytes / STREAM_BYTES if _streams_a(spec, target) else 0.0

    def cycles(vectors: int) -> float:
        rows = min(most, _row_limit(spec.a, target, vectors))
        full, rest = divmod(count, vectors)
        last = _tile_cycles(rows, rest) if rest else 0
        sums = (full * _tile_cycles(rows, vectors) + last) / rows
        return sums + parts(count, vectors) * streamed

    return min((v for v in (3, 2, 4, 1) if v <= count), key=cycles)


def _streams_a(spec: Contraction, target: Target) -> bool:
    """Whether A is constant and comes from beyond the second-level cache for each column tile."""
    return spec.a.packed is not None and _bytes(spec, guess(spec.m)) > target.l2_bytes


def _choose_rows(m: Dim, limit: int, vectors: int) -> int:
    """Rows of the tile: all of them, or what leaves the cheapest rest."""
    if not isinstance(m, int):
        return min(limit, _DIRECT_ROWS)
    if m <= limit:
        return max(m, 1)

    def cycles(rows: int) -> float:
        full, rest = divmod(m, rows)
        return full * _tile_cycles(rows, vectors) + (_tile_cycles(rest, vectors) if rest else 0)

    return min(range(limit, limit * 2 // 3 - 1, -1), key=cycles)


# ---- packing --------------------------------------------------------------------------------


def _must_pack_b(spec: Contraction, target: Target, one_tile: bool) -> bool:
    """Whether B goes through scratch: to turn it round, or as it is used again and again."""
    if spec.b.window is not None or spec.b.contiguous_along == "k" or spec.words > 1:
        return True
    if one_tile:
        return False
    if not spec.b.direct:
        return True
    if not isinstance(spec.n, int) or not isinstance(spec.depth, int):
        return True
    return _bytes(spec, spec.n) > target.l2_bytes // 4


def _run_vectors(spec: Contraction, lanes: int, vectors: int) -> int:
    """Vectors that hold any run of a tile's positions in one row of output."""
    if spec.b.window is None:
        return 0
    width = spec.b.window.outputs[1]
    return vectors if not isinstance(width, int) else min(vectors, parts(width, lanes))


def _looks_ahead(schedule: Schedule, spec: Contraction, target: Target) -> bool:
    """Whether panels of constants come from far, each to be read by several tiles at a time."""
    whole = spec.b.packed is not None and not schedule.depth_block and schedule.row_tiles > 1
    return whole and _bytes(spec, guess(spec.n)) > target.l2_bytes // 4


def _expects_rows(schedule: Schedule, spec: Contraction, target: Target) -> bool:
    """Whether rows of A come from far, each tile's anew."""
    in_place = spec.a.expect is not None and not schedule.pack_a and len(spec.k) == 1
    again = schedule.row_tiles > 1 and not schedule.depth_block
    return in_place and again and _bytes(spec, guess(spec.m)) > target.l2_bytes // 2


def _choose_depth_block(spec: Contraction, target: Target, width: int) -> int:
    """Keep a panel of B within most of the second-level cache, and rows of A within the first.

    Where A is streamed in, in the order in which it is packed, a panel somewhat too large costs
    less than jumps in that stream.
    """
    if not isinstance(spec.depth, int):
        return 0
    first = guess(spec.k[0])
    most = first
    room = target.l2_bytes * 2 if _streams_a(spec, target) else target.l2_bytes * 3 // 4
    if _bytes(spec, width) > room:
        most = max(1, target.l2_bytes // 4 * first // _bytes(spec, width))
    strided = spec.a.packed is None and spec.a.contiguous_along == "outer"
    if strided and spec.depth > _STRIDED_DEPTH:
        most = min(most, max(1, _STRIDED_DEPTH // 2 * first // spec.depth))
    return 0 if most == first else parts(first, parts(first, most))


def _bytes(spec: Contraction, outer: int) -> int:
    """Size of so many rows of A or columns of B."""
    return outer * guess(spec.depth) * spec.accumulate.bytes


# ---- tasks ----------------------------------------------------------------------------------


def _with_blocks(schedule: Schedule, spec: Contraction, given: Tiling) -> Schedule:
    """Choose a task's tiles: the least time summed over several numbers of threads."""
    if given.row_tiles and given.column_tiles:
        return replace(schedule, row_tiles=given.row_tiles, column_tiles=given.column_tiles)
    row_tiles = parts(guess(spec.m), schedule.rows)
    column_tiles = parts(guess(spec.n), schedule.width)
    batch = prod(guess(size) for size in spec.batch)
    task_cycles = _task_cycles(schedule, spec)
    serial = batch * task_cycles(row_tiles, column_tiles) <= _SERIAL_CYCLES
    threads = (1,) if serial else THREADS

    def cycles(blocks: tuple[int, int]) -> float:
        tasks = batch * parts(row_tiles, blocks[0]) * parts(column_tiles, blocks[1])
        one = task_cycles(*blocks)
        return sum(parts(tasks, count) * count * one for count in threads)

    best = min(pairs(_block_sizes(row_tiles), _block_sizes(column_tiles)), key=cycles)
    return replace(schedule, row_tiles=best[0], column_tiles=best[1])


def _block_sizes(count: int) -> list[int]:
    """The sizes when `count` tiles are cut into 1, 2, ... blocks of nearly one size."""
    return sorted({parts(count, cuts) for cuts in range(1, min(count, 64) + 1)}, reverse=True)


def _task_cycles(schedule: Schedule, spec: Contraction) -> Callable[[int, int], float]:
    """Cycles of a task by its row tiles and column tiles."""
    depth = guess(spec.depth)
    tile = _tile_cycles(schedule.rows, schedule.vectors)
    copy_a = _copy_cycles(spec.a, ("outer", "k"), schedule.lanes) if schedule.pack_a else 0.0

    @cache
    def panels(column_tiles: int) -> tuple[float, float]:
        """Of streaming B in, and of making its panels."""
        elements = column_tiles * schedule.width * depth
        streamed = elements * spec.accumulate.bytes / STREAM_BYTES
        if schedule.run_vectors:
            return streamed, _window_cycles(replace(schedule, column_tiles=column_tiles), spec)
        if schedule.pack_b:
            return streamed, elements * _copy_cycles(spec.b, ("outer",), schedule.lanes)
        return streamed, 0.0

    def cycles(row_tiles: int, column_tiles: int) -> float:
        streamed, made = panels(column_tiles)
        sums = row_tiles * column_tiles * depth * tile + TASK_CYCLES
        return sums + streamed + made + row_tiles * schedule.rows * depth * copy_a

    return cycles


def _window_cycles(schedule: Schedule, spec: Contraction) -> float:
    """Cycles of a task's strip and its panels."""
    shape, window = schedule.strip_shape(spec), spec.b.window
    assert shape is not None and window is not None
    runs = parts(schedule.width, guess(window.outputs[1])) + 1
    vectors = schedule.column_tiles * guess(spec.depth) * runs * schedule.run_vectors
    strips = schedule.column_tiles if schedule.depth_block else 1
    return 2.5 * vectors + 5 * strips * guess(shape.elements) / schedule.lanes


def _copy_cycles(operand: Operand, along: tuple[str, ...], lanes: int) -> float:
    """Cycles of moving one element into scratch; cheap where vectors run `along` memory."""
    if operand.contiguous_along not in along:
        return 1.0
    return (2 if operand.direct else 12) / lanes


def _grouped_work(spec: Contraction, lanes: int) -> Dim:
    """The same where each row has one of the matrices B."""
    rows, matrices = spec.m, minimum(product(spec.batch), spec.m)
    sums = floordiv(rows * spec.n * spec.depth, 2 * lanes * CYCLES_PER_NANOSECOND)
    bytes = (rows + matrices * spec.n) * spec.depth * spec.accumulate.bytes
    return sums + floordiv(bytes, STREAM_BYTES * CYCLES_PER_NANOSECOND)


def _work(spec: Contraction, lanes: int) -> Dim:
    """Nanoseconds on one core: the multiply-adds, and streaming in both operands once."""
    batch, depth = product(spec.batch), spec.depth
    sums = floordiv(batch * spec.m * spec.n * depth, 2 * lanes * CYCLES_PER_NANOSECOND)
    bytes = batch * depth * (spec.m + spec.n) * spec.accumulate.bytes
    return sums + floordiv(bytes, STREAM_BYTES * CYCLES_PER_NANOSECOND)
