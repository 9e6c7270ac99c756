"""Windows with few sums each, as in a depthwise convolution, summed in a padded input tile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as pairs
from math import prod

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod, product
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, part_count, size_hint
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.emit.context import EmitContext
from kernelmill.lower.emit.depth import Depth, for_each_k
from kernelmill.lower.emit.microkernel import Fetch, Tile
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.templates.convolution.planar.padded_tile import (
    PaddedTile,
    TileShape,
    fill_tile,
    tile_shape,
)
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution, Window
from kernelmill.lower.templates.matmul.operands import elements_of_a
from kernelmill.lower.templates.matmul.tile_schedule import vector_work

_MOST_SUMS = 4
"""Most rows for which windows are summed where they lie in the tile."""

_MOST_TAPS = 64
_MOST_PRODUCTS = 400
"""Most taps of such a window, and most products that are written out."""

_TILE_PIXELS = 2**14
_TASKS = 32
"""Tiles of that size, and that number of tasks, are aimed at."""

_HELD = 16
"""Most elements of A that stay in registers for the whole task."""


@dataclass(frozen=True)
class DirectWindow:
    """A schedule that sums windows with few sums, as in a depthwise convolution, in place.

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

    @classmethod
    def plan(
        cls, planar: PlanarConvolution, machine: Machine, candidate: Candidate
    ) -> DirectWindow | None:
        """Plan the schedule where too few sums share a window for panels to pay, else None."""
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
        work = vector_work(spec, lanes, machine)
        return cls(lanes, spec.m, rows, together, use_fma, work)

    @property
    def packed_rows(self) -> int:
        """Number of rows of a panel of constant weights."""
        return self.sums

    def widens(self, spec: PlanarConvolution, machine: Machine) -> bool:
        """Return False: elements of the weights are read one by one."""
        return False

    def candidates(self, spec: PlanarConvolution) -> Sequence[Candidate]:
        """Return no candidates."""
        return ()

    def row_blocks(self, spec: PlanarConvolution) -> Dim:
        """Return the number of tasks along the rows of an image."""
        return ceildiv(spec.window.outputs[0], self.rows)

    def tasks(self, spec: PlanarConvolution) -> Dim:
        """Return the number of tasks."""
        return product(spec.contraction.batch) * self.row_blocks(spec)

    def shape(self, spec: PlanarConvolution) -> TileShape:
        """Return the padded input tile of a task; two vectors fit behind it."""
        window = spec.window
        positions = (self.rows - 1) * window.outputs[1] + 1
        return tile_shape(
            window, spec.contraction.k[0], positions, self.lanes, slack=2 * self.lanes
        )

    def emit(self, builder: KernelBuilder, spec: PlanarConvolution) -> None:
        """Write the kernel's body, and set its `tasks` and `scratch`."""
        _emit(builder, spec, self)


@dataclass(frozen=True)
class _DirectContext(EmitContext):
    """A task's image and group, and its block of output rows."""

    spec: PlanarConvolution
    schedule: DirectWindow
    batch: Dims
    row_block: Dim


def _emit(builder: KernelBuilder, spec: PlanarConvolution, schedule: DirectWindow) -> None:
    dtype, tasks = spec.contraction.accumulate, schedule.tasks(spec)
    builder.set_tasks(tasks)
    builder.kernel.scratch = schedule.shape(spec).elements * dtype.bytes
    if tasks == 0:
        return
    blocks = schedule.row_blocks(spec)
    lane = Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes)
    batch = unravel(floordiv(builder.task, blocks), spec.contraction.batch)
    _sum_rows(
        _DirectContext(builder, lane, dtype, spec, schedule, batch, mod(builder.task, blocks))
    )


def _sum_rows(context: _DirectContext) -> None:
    """Sum all of the task's output rows, some rows of one vector of positions at a time."""
    schedule, builder, spec = context.schedule, context.builder, context.spec
    window, depth = spec.window, Depth.whole(spec.contraction.k)
    height, width = window.outputs
    begin = context.row_block * schedule.rows
    end = minimum(height, begin + schedule.rows)
    tile = fill_tile(
        context, window, schedule.shape(spec), context.batch, 0, depth, (begin * width, end * width)
    )
    weights = _weights(context, depth)
    with (
        builder.loop(begin, end, schedule.together, prefix="row") as row,
        builder.loop(0, ceildiv(width, schedule.lanes), prefix="v") as vector,
    ):
        column = vector.index * schedule.lanes
        sums = _sums(context, tile, weights, row.index, column)
        lane = context.masked(width - column, width)
        for (r, m), value in sums.items():
            n = (row.index + r) * width + column + context.lane.index
            spec.contraction.store(builder, context.batch, m, n, lane, value)


def _weights(context: _DirectContext, depth: Depth) -> Fetch:
    """Return a reader of A as vectors; few enough are read once, here."""
    schedule, spec = context.schedule, context.spec.contraction
    element = elements_of_a(context, spec, context.batch, depth, 0, schedule.sums)

    def fetch(i: int, k: Dims) -> Value:
        return context.builder.op("splat", element(i, k), lanes=schedule.lanes)

    sizes = [size_hint(size) for size in depth.axes]
    if sizes[0] != 1 or sizes[1] * sizes[2] * schedule.sums > _HELD:
        return fetch
    every = pairs(range(schedule.sums), *map(range, sizes))
    held: dict[tuple[int, Dims], Value] = {
        (i, k): fetch(i, k) for i, *at in every for k in [tuple(at)]
    }
    return lambda i, k: held[i, (0, *k[1:])]


Sums = dict[tuple[int, int], Value]
"""By output row, counted from the first of those summed together, and row of C."""


def _sums(context: _DirectContext, tile: PaddedTile, weights: Fetch, row: Dim, column: Dim) -> Sums:
    """Return the sums of one vector of positions of some output rows."""
    schedule, depth = context.schedule, tile.depth
    places = list(pairs(range(schedule.together), range(schedule.sums)))

    def add(k: Dims, values: list[Value]) -> list[Value]:
        sums = dict(zip(places, values, strict=True))
        _add_channel(context, tile, weights, k[0], (row, column), sums)
        return list(sums.values())

    zeros = [context.zeros()] * len(places)
    channels = Depth((depth.axes[0],), depth.start, depth.stop)
    values = (
        add((0,), zeros)
        if depth.axes[0] == 1
        else for_each_k(context.builder, channels, zeros, add)
    )
    return dict(zip(places, values, strict=True))


def _add_channel(
    context: _DirectContext,
    tile: PaddedTile,
    weights: Fetch,
    channel: Dim,
    at: tuple[Dim, Dim],
    sums: Sums,
) -> None:
    """Add one channel's products: each vector of pixels is loaded once for all that want it."""
    schedule, window = context.schedule, tile.window
    registers = Tile(schedule.sums, 1, schedule.lanes, context.dtype, schedule.use_fma)
    row, column = at
    for down, taps in _by_line(context, window).items():
        for j in range(size_hint(window.kernel[1])):
            place = tile.place(channel, row, down, j * window.dilation[1])
            pixels = tile.vector(place + column)
            for r, i in taps:
                for m in range(schedule.sums):
                    weight, sum = weights(m, (channel, i, j)), sums[r, m]
                    sums[r, m] = registers.multiply_add(context.builder, weight, pixels, sum)


def _by_line(context: _DirectContext, window: Window) -> dict[int, list[tuple[int, int]]]:
    """Map each line of pixels to the (output row, tap row) pairs that look at it."""
    lines: dict[int, list[tuple[int, int]]] = {}
    for r in range(context.schedule.together):
        for i in range(size_hint(window.kernel[0])):
            down = r * window.stride[0] + i * window.dilation[0]
            lines.setdefault(down, []).append((r, i))
    return dict(sorted(lines.items()))


def _task_rows(batch: tuple[Dim, ...], channels: Dim, window: Window, lanes: int) -> int:
    height, images = size_hint(window.outputs[0]), prod(size_hint(size) for size in batch)
    one_row = tile_shape(window, channels, 1, lanes, 0)
    most = max(_TILE_PIXELS // size_hint(one_row.elements), part_count(height * images, _TASKS), 1)
    return max(count for count in range(1, min(most, height) + 1) if height % count == 0)
