"""Depthwise convolutions: channels are independent, so vectors of them need no transposing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, minimum
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, part_count
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.emit.microkernel import Tile
from kernelmill.lower.emit.packed import Rows
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.templates.convolution.channels_last.context import (
    ConvolutionContext,
    fill_padded_tile,
    padded_strides,
)
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import PixelTiles
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution, Geometry, Pair
from kernelmill.lower.templates.convolution.channels_last.tasks import choose_task
from kernelmill.lower.weights.panel_views import padded

_COLUMNS = 8
_VECTORS = 4
_UNROLLED_TAPS = 25


@dataclass(frozen=True, kw_only=True)
class Depthwise(PixelTiles):
    """One vector of products for each tap and pixel; a padded tile's columns are shared. A task has
    one panel of channels.

    unrolled  a window's rows are written out, not looped over
    """

    unrolled: bool

    def groups(self, geometry: Geometry) -> int:
        """Return 1: all channels are one group."""
        return 1

    def panel_count(self, geometry: Geometry) -> int:
        """Return the number of panels of all channels."""
        return part_count(geometry.groups, self.width)

    def most_panels(self, geometry: Geometry) -> int:
        return 1

    @classmethod
    def plan(
        cls, geometry: Geometry, machine: Machine, candidate: Candidate = OPEN
    ) -> Depthwise | None:
        """Plan the schedule where each channel is a group, else None."""
        if not geometry.depthwise:
            return None
        lanes = machine.isa.lanes(geometry.accumulate)
        vectors = min(part_count(geometry.groups, lanes), candidate.vectors or _VECTORS)
        columns = geometry.outputs[2]
        across = min(columns, _COLUMNS)
        cuts = range(1, across + 1)
        wasted = {n: part_count(columns, n) * n - columns for n in cuts}
        across = max(cuts, key=lambda n: (n - 4 * wasted[n] / part_count(columns, n), n))
        across = min(candidate.across or across, columns)
        tile = cls(
            lanes=lanes, vectors=vectors, across=across, outputs=geometry.outputs,
            pixel=lanes * vectors, use_fma=machine.isa.has_fma and geometry.accumulate.is_float,
            unrolled=geometry.taps <= _UNROLLED_TAPS,
        )  # fmt: skip

        def task(cut: Pair) -> Depthwise:
            return replace(tile, rows=cut[0])

        cut, work = choose_task(geometry, tile, [1], task, machine, candidate)
        return replace(task(cut), work=work)

    def candidates(self, geometry: Geometry) -> Iterator[Candidate]:
        """Yield other channels of a task, and other pixels at a time."""
        most = part_count(geometry.groups, self.lanes)
        for vectors in (self.vectors * 2, self.vectors // 2, self.vectors * 4):
            if 0 < vectors <= most:
                yield Candidate(vectors=vectors)
        for across in (self.across // 2, self.across - 1, self.across * 2):
            if 0 < across <= geometry.outputs[2]:
                yield Candidate(across=across)

    def packed(self, node: Node, geometry: Geometry) -> tuple[Value, Rows | None]:
        """Return one panel of all channels, with whole vectors of them; a row for each tap."""
        builder, size = GraphBuilder("panels", node.origin), geometry.groups
        rows = builder.emit("reshape", node.operands[1], shape=(1, size, geometry.taps, 1))
        view = builder.emit("reshape", node.operands[1], shape=(size, geometry.taps))
        whole = part_count(size, self.lanes) * self.lanes
        view = padded(builder, view, (whole, geometry.taps))
        return builder.emit("permute", view, dims=(1, 0)), Rows(rows, whole)

    def emit(self, builder: KernelBuilder, lane: Lane, spec: Convolution[Any], task: Dims) -> None:
        """Emit all of the task's channels."""
        context = ConvolutionContext[Depthwise](
            builder, lane, spec.geometry.accumulate, spec, self, *task
        )
        builder.kernel.scratch = context.scratch_bytes()
        convolve_depthwise(context)


def convolve_depthwise(context: ConvolutionContext[Depthwise]) -> None:
    """Emit all of the task's channels and rows, some pixels of a row at a time."""
    geometry, schedule = context.geometry, context.schedule
    lanes, size = schedule.lanes, geometry.groups
    first = context.panel_block * schedule.width
    vectors = minimum(
        schedule.vectors, part_count(size, lanes) - context.panel_block * schedule.vectors
    )
    fill_padded_tile(context, first, vectors, size)
    full, rest = divmod(geometry.outputs[2], schedule.across)
    with (
        context.builder.loop(0, vectors, prefix="v") as vector,
        context.builder.loop(context.first, context.last, prefix="row") as row,
    ):
        start = vector.index * lanes
        with context.counted(0, full, prefix="tile") as tile:
            _pixels(context, first, start, row.index, tile * schedule.across, schedule.across)
        if rest:
            _pixels(context, first, start, row.index, full * schedule.across, rest)


def _pixels(
    context: ConvolutionContext[Depthwise], first: Dim, start: Dim, row: Dim, column: Dim,
    count: int,
) -> None:  # fmt: skip
    geometry, builder = context.geometry, context.builder
    _, _, line, pixel = padded_strides(context)
    at = context.padded + (row - context.first) * geometry.stride[1] * line
    at = at + column * geometry.stride[2] * pixel + start
    sums = [context.zeros()] * count
    lines = prod(geometry.kernel[:2])
    if context.schedule.unrolled:
        for i in range(lines):
            sums = _add_row(context, i, first + start, at, sums)
    else:
        with builder.loop(0, lines, 1, sums, prefix="k") as loop:
            loop.carry(*_add_row(context, loop.index, first + start, at, list(loop.carried)))
        sums = list(loop.results)
    lane = context.masked(geometry.groups - (first + start), geometry.groups)
    channel = first + start + context.lane.index
    for x, value in enumerate(sums):
        context.spec.store(context.image, channel, (context.plane, row, column + x), lane, value)


def _add_row(
    context: ConvolutionContext[Depthwise], i: Dim, channel: Dim, at: Dim, sums: list[Register]
) -> list[Register]:
    """Add the products of one row of the window, which is counted through all of its planes: each
    vector of pixels is read once."""
    geometry, lanes = context.geometry, context.schedule.lanes
    _, plane, line, pixel = padded_strides(context)
    padded = part_count(geometry.groups, lanes) * lanes
    deep, down = unravel(i, geometry.kernel[:2])
    at = at + deep * plane + down * geometry.dilation[1] * line
    registers = Tile(len(sums), 1, lanes, context.dtype, context.schedule.use_fma)
    known: dict[int, Register] = {}
    sums = list(sums)
    for j in range(geometry.kernel[2]):
        tap = (i * geometry.kernel[2] + j) * padded
        weight = context.weights(tap + channel)
        for x, sum in enumerate(sums):
            place = x * geometry.stride[2] + j * geometry.dilation[2]
            if place not in known:
                known[place] = context.read(at + place * pixel, lanes)
            sums[x] = registers.multiply_add(context.builder, weight, known[place], sum)
    return sums
