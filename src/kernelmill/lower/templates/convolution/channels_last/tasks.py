"""Sizes and costs of a convolution's tasks.

Costs are nanoseconds of one core by the rates of core/target/machine.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as pairs

from kernelmill.core.target.dot_units import MULTIPLY_ADD
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.axes import part_count, size_hint
from kernelmill.lower.schedule.candidate import THREADS, Candidate, block_sizes, threads_ns, tile_ns
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import PixelTiles
from kernelmill.lower.templates.convolution.channels_last.spec import Geometry, Pair

_SERIAL_NS = 5000
"""Convolutions below this run on one thread."""


def _tile_ns(pixels: int, vectors: int, machine: Machine) -> float:
    """Return the cost of a register tile for each product: few sums wait for each other."""
    waiting = machine.rates.latency / machine.dot_rate(MULTIPLY_ADD)
    return max(tile_ns(pixels, vectors, machine), waiting)


def image_ns(geometry: Geometry, tile: PixelTiles, machine: Machine) -> float:
    """Return the cost of one image and group."""
    planes, rows, _ = tile.outputs
    return planes * rows_ns(geometry, tile, rows, machine) * tile.panel_count(geometry)


def rows_ns(geometry: Geometry, tile: PixelTiles, rows: int, machine: Machine) -> float:
    """Return the cost of one panel and that many output rows."""
    full, rest = divmod(rows, tile.down)
    across, tail = divmod(tile.outputs[2], tile.across)
    line = across * _tile_ns(tile.across, tile.vectors, machine)
    line += _tile_ns(tail, tile.vectors, machine) if tail else 0
    pixels = tile.down * tile.across
    whole = _tile_ns(pixels, tile.vectors, machine) if tile.down > 1 else line
    return geometry.depth * (full * whole + rest * line)


def choose_task(
    geometry: Geometry, tile: PixelTiles, panels: list[int], task: Callable[[Pair], PixelTiles],
    machine: Machine, candidate: Candidate,
) -> tuple[Pair, int]:  # fmt: skip
    """Choose a task's rows and panels by the least time summed over several numbers of threads;
    return also the nanoseconds of all tasks on one core."""
    planes, height, _ = tile.outputs
    batch = size_hint(geometry.images) * planes * tile.groups(geometry)
    rows = [count * tile.down for count in block_sizes(part_count(height, tile.down))]

    def tasks(cut: Pair) -> tuple[int, float]:
        schedule = task(cut)
        number = batch * schedule.row_blocks() * schedule.panel_blocks(geometry)
        return number, task_ns(geometry, schedule, machine)

    costs = {cut: tasks(cut) for cut in pairs((min(count, height) for count in rows), panels)}
    least = min(number * one for number, one in costs.values())
    threads = (1,) if least <= _SERIAL_NS else THREADS

    best = min(costs, key=lambda cut: threads_ns(*costs[cut], threads))
    if candidate.rows and candidate.panels:
        best = min(candidate.rows, height), min(candidate.panels, max(panels))
    return best, int(least) + 1


def task_ns(geometry: Geometry, schedule: PixelTiles, machine: Machine) -> float:
    """Return the cost of a task: sums, padded tile, and weights and pixels from the caches."""
    bytes = geometry.accumulate.bytes
    pixels = schedule.rows * schedule.outputs[2]
    read = pixels * geometry.channels * bytes
    padded = schedule.padded_elements(geometry)
    sums = rows_ns(geometry, schedule, schedule.rows, machine) * schedule.panels
    weights = schedule.panels * geometry.depth * schedule.width * bytes
    kept = padded * bytes if padded else read
    beyond = kept * (schedule.panels if kept > machine.l2_bytes // 2 else 1)
    moved = machine.streaming(weights / 4 + beyond / 2)
    operations = 6 * padded / schedule.lanes + schedule.widenings(geometry)
    return sums + machine.task_ns + machine.time(operations, {}) + moved
