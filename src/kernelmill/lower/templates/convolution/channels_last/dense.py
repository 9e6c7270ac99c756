"""The schedule of convolutions in which channels are summed: tiles of pixels by panels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.axes import Dims, part_count
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.packed import Rows, widening_pays
from kernelmill.lower.schedule.candidate import OPEN, Candidate, block_sizes
from kernelmill.lower.templates.convolution.channels_last.context import DenseContext
from kernelmill.lower.templates.convolution.channels_last.emit_dense import convolve
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import (
    ChannelBlocks,
    DenseTiles,
    PanelMajor,
    TileMajor,
)
from kernelmill.lower.templates.convolution.channels_last.spec import (
    Convolution,
    Geometry,
    Pair,
    Sizes,
)
from kernelmill.lower.templates.convolution.channels_last.tasks import choose_task, image_ns
from kernelmill.lower.weights.panel_views import padded

_PIXELS = {32: (16, 14, 8, 6), 16: (10, 6, 4, 2)}
"""Pixels of the largest register tile of 1, 2, 3 and 4 vectors, by the number of registers."""

_LANE_PIXELS = (15, 9, 7, 5)
"""The same where pixels are read in vectors of channels: each is in a register."""

_FEW_WAYS = 8
_PAGE = 4096
"""Pixels a multiple of a page apart share a cache set of 8 to 12 ways."""

_FEW_TILES = 16
"""With more tiles the time that the first one waits for weights does not count."""

_WIDEST = 4
_LEAST_BLOCK = 32


@dataclass(frozen=True, kw_only=True)
class Dense(DenseTiles):
    """Tiles of output pixels by a panel of output channels."""

    @classmethod
    def plan(cls, geometry: Geometry, machine: Machine, candidate: Candidate = OPEN) -> Dense:
        """Plan the schedule, which every convolution can have."""
        lanes = machine.isa.lanes(geometry.accumulate)
        every = list(_tiles(geometry, machine, lanes))
        tiles = [tile for tile in every if _fits(candidate, tile)] or every
        best = min(tiles, key=lambda tile: _cost(geometry, tile, machine))
        block = candidate.block or 0
        if not block or geometry.channels % block:
            block = _choose_block(geometry, best, machine)
        if block < geometry.channels:
            best = replace(best, order=ChannelBlocks(block))
        return _dense(geometry, best, machine, candidate)

    def candidates(self, geometry: Geometry) -> Iterator[Candidate]:
        """Yield other register tiles, and other blocks of channels."""
        count = part_count(geometry.outs, self.lanes)
        for vectors in sorted(range(1, _WIDEST + 1), key=lambda v: abs(v - self.vectors)):
            if vectors != self.vectors and vectors <= count:
                yield Candidate(vectors=vectors)
        known = self.block(geometry)
        for block in (known // 2, known * 2):
            whole = block > 0 and geometry.channels % block == 0
            if whole and min(_LEAST_BLOCK, geometry.channels) <= block:
                yield Candidate(block=block)
        down, across = self.down, self.across
        smaller = [(down - 1, across)] if down > 1 else [(1, across - 1), (1, across - 2)]
        for rows, columns in smaller:
            if columns > 0:
                yield Candidate(down=rows, across=columns)

    def packed(self, node: Node, geometry: Geometry) -> tuple[Value, Rows | None]:
        """Return the weights in panels."""
        weight = node.operands[1]
        builder = GraphBuilder("panels", node.origin)
        groups, outs, channels = geometry.groups, geometry.outs, geometry.channels
        panels, block, taps = self.panel_count(geometry), self.block(geometry), geometry.taps
        view = builder.emit("reshape", weight, shape=(groups, outs, channels, taps))
        flat = builder.emit("reshape", weight, shape=(groups, outs, channels * taps, 1))
        rows = Rows(flat if geometry.planar else view, self.width, block)
        view = padded(builder, view, (groups, panels * self.width, channels, taps))
        blocks = (groups, panels, self.width, channels // block, block, taps)
        view = builder.emit("reshape", view, shape=blocks)
        inner = (4, 5) if geometry.planar else (5, 4)
        return builder.emit("permute", view, dims=(0, 1, 3, *inner, 2)), rows

    def emit(self, builder: KernelBuilder, lane: Lane, spec: Convolution[Any], task: Dims) -> None:
        """Emit all of the task's panels."""
        context = DenseContext(builder, lane, spec.geometry.accumulate, spec, self, *task)
        builder.kernel.scratch = context.scratch_bytes()
        convolve(context)


def _fits(candidate: Candidate, tile: Dense) -> bool:
    """Return whether a register tile has the shape that a candidate fixes."""
    asked = candidate.down, candidate.across
    shape = not all(asked) or asked == (tile.down, tile.across)
    return shape and candidate.vectors in (None, tile.vectors)


# ---- the register tile ----------------------------------------------------------------------


def _cost(geometry: Geometry, tile: Dense, machine: Machine) -> tuple[float, int]:
    """Return a sort key: nanoseconds of an image, then more pixels of a tile first. Where pixels
    are read in vectors, loads count beside multiply-adds: some tiles need half as many."""
    pixels = tile.down * tile.across
    spent = image_ns(geometry, tile, machine)
    if tile.by_lane:
        of_pixels, of_weights = 1 / tile.lanes / tile.vectors, 1 / pixels / tile.vectors
        spent *= 1 + of_pixels + of_weights
    return spent, -pixels


def _tiles(geometry: Geometry, machine: Machine, lanes: int) -> Iterator[Dense]:
    direct = geometry.pointwise and geometry.direct and not geometry.planar
    bytes = geometry.accumulate.bytes
    apart = geometry.groups * geometry.channels * geometry.stride[2] * bytes
    pixel = 1 if geometry.planar else geometry.channels
    if not geometry.planar and pixel * bytes * geometry.stride[2] % (_PAGE // 4) == 0:
        pixel += machine.isa.line_bytes // bytes
    by_lane = machine.isa.has_lane_operand and not geometry.planar
    by_lane = by_lane and geometry.accumulate.is_float and geometry.channels % lanes == 0
    for vectors in range(1, 5):
        if lanes * (vectors - 1) >= geometry.outs and vectors > 1:
            break
        most = _LANE_PIXELS if by_lane else _PIXELS[machine.isa.vector_registers]
        limit = most[vectors - 1]
        if direct and apart % _PAGE == 0:
            limit = min(limit, _FEW_WAYS)
        for outputs in _foldings(geometry, limit):
            for down, across in _shapes(outputs, limit):
                yield Dense(
                    lanes=lanes, vectors=vectors, down=down, across=across, outputs=outputs,
                    padded=not direct, pixel=pixel, order=PanelMajor(),
                    use_fma=machine.isa.has_fma and geometry.accumulate.is_float,
                    by_lane=by_lane,
                )  # fmt: skip


def _foldings(geometry: Geometry, limit: int) -> Iterator[Sizes]:
    """Yield ways to count the output pixels in planes, rows and columns."""
    if not (geometry.folded and geometry.direct and not geometry.planar):
        yield geometry.outputs
        return
    pixels = prod(geometry.outputs)
    divisors = [d for d in range(limit, limit * 3 // 4 - 1, -1) if pixels % d == 0]
    for across in divisors:
        yield 1, pixels // across, across
    if not divisors:
        yield from dict.fromkeys((geometry.outputs, (1, 1, pixels)))


def _shapes(outputs: Sizes, limit: int) -> Iterator[Pair]:
    """Yield tiles of whole rows, or of a part of one."""
    _, height, width = outputs
    if width <= limit:
        for down in range(1, min(height, limit // width) + 1):
            yield down, width
    else:
        for across in range(limit // 2 + 1, limit + 1):
            yield 1, across


def _choose_block(geometry: Geometry, tile: Dense, machine: Machine) -> int:
    """Choose channels such that a panel's part stays in the second-level cache."""
    bytes = geometry.depth * tile.width * geometry.accumulate.bytes
    most = machine.l2_bytes * 3 // 8
    _, height, width = tile.outputs
    tiles = part_count(height, tile.down) * part_count(width, tile.across)
    if bytes <= most or tiles < 4:
        return geometry.channels
    cuts = range(part_count(bytes, most), geometry.channels + 1)
    return geometry.channels // next(cut for cut in cuts if geometry.channels % cut == 0)


# ---- tasks ----------------------------------------------------------------------------------


def _dense(geometry: Geometry, tile: Dense, machine: Machine, candidate: Candidate) -> Dense:
    def task(cut: Pair) -> Dense:
        return replace(tile, rows=cut[0], panels=cut[1])

    panels = block_sizes(tile.panel_count(geometry))
    cut, work = choose_task(geometry, tile, panels, task, machine, candidate)
    schedule = replace(task(cut), work=work)
    if geometry.half and (schedule.by_lane or not machine.isa.has_lane_operand):
        schedule = replace(schedule, widened=widening_pays(schedule.tiles, 1, machine))
    if _keeps_panels(geometry, schedule, machine):
        return replace(schedule, order=TileMajor())
    ahead = _prefetches_weights(geometry, schedule, machine)
    return replace(schedule, prefetch_weights=ahead)


def _keeps_panels(geometry: Geometry, schedule: Dense, machine: Machine) -> bool:
    """Return whether the epilogue had better go along the channels of its images: it can where the
    task's weights stay in the second-level cache."""
    bytes = schedule.panels * geometry.depth * schedule.width * geometry.accumulate.bytes
    stay = bytes <= machine.l2_bytes // 2 and not _prefetches_weights(geometry, schedule, machine)
    return geometry.adds and stay and isinstance(schedule.order, PanelMajor)


def _prefetches_weights(geometry: Geometry, schedule: Dense, machine: Machine) -> bool:
    """Return whether weights come from beyond the second-level cache for few tiles each."""
    bytes = geometry.groups * geometry.outs * geometry.depth * geometry.accumulate.bytes
    return bytes > machine.l2_bytes // 4 and schedule.tiles <= _FEW_TILES
