"""How a convolution along pixels is cut: as a contraction of panels of windows, or with few sums
directly from the padded input tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.machine import Machine
from kernelmill.lower.elements.sizes import part_count, size_hint
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution, Window
from kernelmill.lower.templates.convolution.planar.tile_shape import TileShape, tile_shape
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.candidates import ContractionCandidate
from kernelmill.lower.templates.matmul.heuristics import estimated_work, plan_blocked

_MOST_SUMS = 4
"""Most rows for which windows are summed where they lie in the tile."""

_MOST_TAPS = 64
_MOST_PRODUCTS = 400
"""Most taps of such a window, and most products that are written out."""

_TILE_PIXELS = 2**14
_TASKS = 32
"""Tiles of that size, and that number of tasks, are aimed at."""


@dataclass(frozen=True)
class DirectWindow:
    """Windows with few sums, as in a depthwise convolution, are summed where they lie in the tile.

    lanes      positions of a vector
    sums       output channels, all that there are
    rows       output rows of a task
    together   and so many of them at a time, which divide them
    use_fma    the processor multiplies and adds in one instruction
    work       estimated nanoseconds of all tasks on one core
    """

    lanes: int
    sums: int
    rows: int
    together: int
    use_fma: bool
    work: Dim

    def __post_init__(self) -> None:
        if self.rows % self.together:
            raise ValueError(f"a task of {self.rows} rows, {self.together} at a time")

    def row_blocks(self, spec: PlanarConvolution) -> Dim:
        """Tasks along the rows of an image."""
        return ceildiv(spec.window.outputs[0], self.rows)

    def tasks(self, spec: PlanarConvolution) -> Dim:
        """The number of tasks."""
        return product(spec.contraction.batch) * self.row_blocks(spec)

    def shape(self, spec: PlanarConvolution) -> TileShape:
        """The padded input tile of a task; two vectors fit behind it."""
        window = spec.window
        positions = (self.rows - 1) * window.outputs[1] + 1
        return tile_shape(
            window, spec.contraction.k[0], positions, self.lanes, slack=2 * self.lanes
        )


Schedule = Blocked | DirectWindow


def plan_planar(
    spec: PlanarConvolution, machine: Machine, candidate: ContractionCandidate | None
) -> Schedule:
    """The schedule for this convolution on this processor, with what the candidate settles.
    Depends on nothing else."""
    direct = _direct_window(spec, machine)
    return direct or plan_blocked(spec.contraction, machine, candidate or ContractionCandidate())


def _direct_window(planar: PlanarConvolution, machine: Machine) -> DirectWindow | None:
    """Where so few sums share a window that a panel would not pay."""
    spec, window = planar.contraction, planar.window
    if not isinstance(spec.m, int) or not 0 < spec.m <= _MOST_SUMS:
        return None
    taps = size_hint(window.kernel[0]) * size_hint(window.kernel[1])
    known = all(isinstance(size, int) for size in (*spec.k, *window.outputs))
    if not known or taps > _MOST_TAPS or spec.n == 0:
        return None
    lanes = machine.isa.lanes(spec.accumulate)
    rows = _task_rows(spec.batch, spec.k[0], window, lanes)
    sums = min(machine.isa.vector_registers // 4, _MOST_PRODUCTS // taps)
    most = max(1, sums // spec.m)
    together = max(count for count in range(1, most + 1) if rows % count == 0)
    use_fma = machine.isa.has_fma and spec.accumulate.is_float
    work = estimated_work(spec, lanes, machine)
    return DirectWindow(lanes, spec.m, rows, together, use_fma, work)


def _task_rows(batch: tuple[Dim, ...], channels: Dim, window: Window, lanes: int) -> int:
    """Output rows of a task."""
    height, images = size_hint(window.outputs[0]), prod(size_hint(size) for size in batch)
    one_row = tile_shape(window, channels, 1, lanes, 0)
    most = max(_TILE_PIXELS // size_hint(one_row.elements), part_count(height * images, _TASKS), 1)
    return max(count for count in range(1, min(most, height) + 1) if height % count == 0)
