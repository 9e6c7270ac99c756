"""The schedule of depthwise convolutions: each channel by itself, in a padded tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.packed import Rows
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.templates.convolution.channels_last.context import DepthwiseContext
from kernelmill.lower.templates.convolution.channels_last.emit_depthwise import convolve_depthwise
from kernelmill.lower.templates.convolution.channels_last.geometry import Geometry, Pair
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import (
    ConvolutionPlace,
    DepthwiseTiles,
)
from kernelmill.lower.templates.convolution.channels_last.tasks import choose_task

_COLUMNS = 8
_VECTORS = 4
_UNROLLED_TAPS = 25


@dataclass(frozen=True, kw_only=True)
class Depthwise(DepthwiseTiles):
    """One vector of products for each tap and pixel; a padded tile's columns are shared."""

    @classmethod
    def plan(
        cls, geometry: Geometry, machine: Machine, candidate: Candidate = OPEN
    ) -> Depthwise | None:
        """Plan the schedule where each channel is a group, else None."""
        if not geometry.depthwise:
            return None
        lanes = machine.isa.lanes(geometry.accumulate)
        vectors = min(part_count(geometry.groups, lanes), candidate.vectors or _VECTORS)
        across = min(geometry.outputs[1], _COLUMNS)
        columns, cuts = geometry.outputs[1], range(1, across + 1)
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
            if 0 < across <= geometry.outputs[1]:
                yield Candidate(across=across)

    def packed(self, node: Node, geometry: Geometry) -> tuple[Value, Rows | None]:
        """Return one panel of all channels, with whole vectors of them; a row for each tap."""
        builder = GraphBuilder("panels")
        builder.origin = node.origin
        size = geometry.groups
        rows = builder.emit("reshape", node.operands[1], shape=(1, size, geometry.taps, 1))
        view = builder.emit("reshape", node.operands[1], shape=(size, *geometry.kernel))
        missing = -size % self.lanes
        if missing:
            view = builder.emit("pad", view, low=(0, 0, 0), high=(missing, 0, 0), value=0)
        return builder.emit("permute", view, dims=(1, 2, 0)), Rows(rows, size + missing)

    def emit(self, place: ConvolutionPlace) -> None:
        """Emit all of the task's channels."""
        context = DepthwiseContext.at(place, self)
        place.builder.kernel.scratch = context.scratch_bytes()
        convolve_depthwise(context)
