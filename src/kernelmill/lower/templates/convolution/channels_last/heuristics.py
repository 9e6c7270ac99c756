"""The rules that choose a convolution's schedule.

Costs are nanoseconds of one core by the rates of core/machine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product as pairs

from kernelmill.core.isa import MULTIPLY_ADD
from kernelmill.core.machine import Machine
from kernelmill.lower.elements.sizes import part_count, size_hint
from kernelmill.lower.schedule.teams import THREADS
from kernelmill.lower.schedule.tile_cost import block_sizes, tile_ns
from kernelmill.lower.templates.convolution.channels_last.candidates import ConvolutionCandidate
from kernelmill.lower.templates.convolution.channels_last.geometry import Geometry, Pair
from kernelmill.lower.templates.convolution.channels_last.schedule import (
    ChannelBlocks,
    Dense,
    Depthwise,
    PanelMajor,
    Schedule,
    TileMajor,
)

_OPEN = ConvolutionCandidate()

_PIXELS = {32: (16, 14, 8, 6), 16: (10, 6, 4, 2)}
"""Pixels of the largest register tile of 1, 2, 3 and 4 vectors, by the number of registers."""

_FEW_WAYS = 8
_PAGE = 4096
"""Pixels a multiple of a page apart share a cache set of 8 to 12 ways."""

_DEPTHWISE_COLUMNS = 8
_DEPTHWISE_VECTORS = 4
_UNROLLED_TAPS = 25
_FEW_TILES = 16
"""With more tiles the time that the first one waits for weights does not count."""

_SERIAL_NS = 5000
"""Convolutions below this run on one thread."""


def plan_convolution(
    geometry: Geometry, machine: Machine, candidate: ConvolutionCandidate = _OPEN
) -> Schedule:
    """The schedule for this convolution on this processor, with what the candidate settles."""
    lanes = machine.isa.lanes(geometry.accumulate)
    if geometry.depthwise:
        return _depthwise(geometry, machine, lanes, candidate)
    every = list(_tiles(geometry, machine, lanes))
    tiles = [tile for tile in every if candidate.fits(tile)] or every
    best = min(
        tiles, key=lambda tile: (_image_ns(geometry, tile, machine), -tile.down * tile.across)
    )
    block = candidate.block or _choose_block(geometry, best, machine)
    if block < geometry.channels:
        best = replace(best, order=ChannelBlocks(block))
    return _dense(geometry, best, machine, candidate)


# ---- the register tile ----------------------------------------------------------------------


def _tiles(geometry: Geometry, machine: Machine, lanes: int) -> Iterator[Dense]:
    direct = geometry.pointwise and geometry.direct and not geometry.planar
    bytes = geometry.accumulate.bytes
    apart = geometry.groups * geometry.channels * geometry.stride[1] * bytes
    pixel = 1 if geometry.planar else geometry.channels
    if not geometry.planar and pixel * bytes * geometry.stride[1] % (_PAGE // 4) == 0:
        pixel += machine.isa.line_bytes // bytes
    for vectors in range(1, 5):
        if lanes * (vectors - 1) >= geometry.outs and vectors > 1:
            break
        limit = _PIXELS[machine.isa.vector_registers][vectors - 1]
        if direct and apart % _PAGE == 0:
            limit = min(limit, _FEW_WAYS)
        for outputs in _foldings(geometry, limit):
            for down, across in _shapes(outputs, limit):
                yield Dense(
                    lanes=lanes, vectors=vectors, down=down, across=across, outputs=outputs,
                    padded=not direct, pixel=pixel, order=PanelMajor(),
                    use_fma=machine.isa.has_fma and geometry.accumulate.is_float,
                )  # fmt: skip


def _foldings(geometry: Geometry, limit: int) -> Iterator[Pair]:
    """Ways to count the output pixels in rows and columns."""
    if not (geometry.folded and geometry.direct and not geometry.planar):
        yield geometry.outputs
        return
    pixels = geometry.outputs[0] * geometry.outputs[1]
    divisors = [d for d in range(limit, limit * 3 // 4 - 1, -1) if pixels % d == 0]
    for across in divisors:
        yield pixels // across, across
    if not divisors:
        yield from dict.fromkeys((geometry.outputs, (1, pixels)))


def _shapes(outputs: Pair, limit: int) -> Iterator[Pair]:
    """Tiles of whole rows, or of a part of one."""
    height, width = outputs
    if width <= limit:
        for down in range(1, min(height, limit // width) + 1):
            yield down, width
    else:
        for across in range(limit // 2 + 1, limit + 1):
            yield 1, across


def _tile_ns(pixels: int, vectors: int, machine: Machine) -> float:
    """Of a register tile for each product: so few sums wait for each other."""
    waiting = machine.rates.latency / machine.dot_rate(MULTIPLY_ADD)
    return max(tile_ns(pixels, vectors, machine), waiting)


def _image_ns(geometry: Geometry, tile: Schedule, machine: Machine) -> float:
    """Of one image and group."""
    return _rows_ns(geometry, tile, tile.outputs[0], machine) * tile.panel_count(geometry)


def _rows_ns(geometry: Geometry, tile: Schedule, rows: int, machine: Machine) -> float:
    """Of one panel and so many output rows."""
    full, rest = divmod(rows, tile.down)
    across, tail = divmod(tile.outputs[1], tile.across)
    line = across * _tile_ns(tile.across, tile.vectors, machine)
    line += _tile_ns(tail, tile.vectors, machine) if tail else 0
    pixels = tile.down * tile.across
    whole = _tile_ns(pixels, tile.vectors, machine) if tile.down > 1 else line
    return geometry.depth * (full * whole + rest * line)


def _choose_block(geometry: Geometry, tile: Dense, machine: Machine) -> int:
    """Channels such that a panel's part stays in the second-level cache beside the pixels."""
    bytes = geometry.depth * tile.width * geometry.accumulate.bytes
    most = machine.l2_bytes * 3 // 8
    tiles = part_count(tile.outputs[0], tile.down) * part_count(tile.outputs[1], tile.across)
    if bytes <= most or tiles < 4:
        return geometry.channels
    cuts = range(part_count(bytes, most), geometry.channels + 1)
    return geometry.channels // next(cut for cut in cuts if geometry.channels % cut == 0)


# ---- tasks ----------------------------------------------------------------------------------


def _dense(
    geometry: Geometry, tile: Dense, machine: Machine, candidate: ConvolutionCandidate
) -> Dense:
    """The schedule with this register tile."""

    def task(cut: Pair) -> Dense:
        return replace(tile, rows=cut[0], panels=cut[1])

    panels = block_sizes(tile.panel_count(geometry))
    cut, work = _choose_task(geometry, tile, panels, task, machine, candidate)
    schedule = replace(task(cut), work=work)
    if _keeps_panels(geometry, schedule, machine):
        return replace(schedule, order=TileMajor())
    ahead = _prefetches_weights(geometry, schedule, machine)
    return replace(schedule, prefetch_weights=ahead)


def _choose_task(
    geometry: Geometry, tile: Schedule, panels: list[int], task: Callable[[Pair], Schedule],
    machine: Machine, candidate: ConvolutionCandidate,
) -> tuple[Pair, int]:  # fmt: skip
    """A task's rows and panels: the least time summed over several numbers of threads; and the
    nanoseconds of all tasks on one core."""
    height, batch = tile.outputs[0], size_hint(geometry.images) * geometry.groups
    rows = [count * tile.down for count in block_sizes(part_count(height, tile.down))]

    def tasks(cut: Pair) -> tuple[int, float]:
        schedule = task(cut)
        number = batch * schedule.row_blocks() * schedule.panel_blocks(geometry)
        return number, _task_ns(geometry, schedule, machine)

    costs = {cut: tasks(cut) for cut in pairs((min(count, height) for count in rows), panels)}
    least = min(number * one for number, one in costs.values())
    threads = (1,) if least <= _SERIAL_NS else THREADS

    def spent(cut: Pair) -> float:
        number, one = costs[cut]
        return sum(part_count(number, count) * count * one for count in threads)

    best = min(costs, key=spent)
    if candidate.rows and candidate.panels:
        best = min(candidate.rows, height), candidate.panels
    return best, int(least) + 1


def _keeps_panels(geometry: Geometry, schedule: Dense, machine: Machine) -> bool:
    """Whether the epilogue had better go along the channels of its images, which it can where the
    task's weights stay in the second-level cache."""
    bytes = schedule.panels * geometry.depth * schedule.width * geometry.accumulate.bytes
    stay = bytes <= machine.l2_bytes // 2 and not _prefetches_weights(geometry, schedule, machine)
    return geometry.adds and stay and isinstance(schedule.order, PanelMajor)


def _prefetches_weights(geometry: Geometry, schedule: Dense, machine: Machine) -> bool:
    """Whether weights come from far and each is read by few tiles."""
    bytes = geometry.groups * geometry.outs * geometry.depth * geometry.accumulate.bytes
    return bytes > machine.l2_bytes // 4 and schedule.tiles <= _FEW_TILES


def _task_ns(geometry: Geometry, schedule: Schedule, machine: Machine) -> float:
    """Of a task: its sums, its padded tile, and weights and pixels as they come from the caches."""
    bytes = geometry.accumulate.bytes
    pixels = schedule.rows * schedule.outputs[1]
    read = pixels * geometry.channels * bytes
    padded = schedule.padded_elements(geometry)
    sums = _rows_ns(geometry, schedule, schedule.rows, machine) * schedule.panels
    weights = schedule.panels * geometry.depth * schedule.width * bytes
    kept = padded * bytes if padded else read
    beyond = kept * (schedule.panels if kept > machine.l2_bytes // 2 else 1)
    moved = machine.streaming(weights / 4 + beyond / 2)
    return sums + machine.task_ns + machine.time(6 * padded / schedule.lanes, {}) + moved


def _depthwise(
    geometry: Geometry, machine: Machine, lanes: int, candidate: ConvolutionCandidate
) -> Depthwise:
    """One vector of products for each tap and pixel; a padded tile's columns are shared."""
    vectors = min(part_count(geometry.groups, lanes), candidate.vectors or _DEPTHWISE_VECTORS)
    across = min(geometry.outputs[1], _DEPTHWISE_COLUMNS)
    cuts = range(1, across + 1)
    wasted = {n: part_count(geometry.outputs[1], n) * n - geometry.outputs[1] for n in cuts}
    across = max(cuts, key=lambda n: (n - 4 * wasted[n] / part_count(geometry.outputs[1], n), n))
    across = candidate.across or across
    tile = Depthwise(
        lanes=lanes, vectors=vectors, across=across, outputs=geometry.outputs,
        pixel=lanes * vectors, use_fma=machine.isa.has_fma and geometry.accumulate.is_float,
        unrolled=geometry.taps <= _UNROLLED_TAPS,
    )  # fmt: skip

    def task(cut: Pair) -> Depthwise:
        return replace(tile, rows=cut[0])

    cut, work = _choose_task(geometry, tile, [1], task, machine, candidate)
    return replace(task(cut), work=work)
