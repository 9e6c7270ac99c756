"""The layouts with vectors of pixels: windows from a padded input tile, or any convolution as a
product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, floordiv, maximum
from kernelmill.core.dtype import DType
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, part_count, size_hint
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import EmitContext, accumulator
from kernelmill.lower.emit.depth import Depth
from kernelmill.lower.emit.packed import PackedWeights, is_half, widening_pays
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import Binding, Epilogue, GroupContext, Template
from kernelmill.lower.templates.convolution.planar.direct_window import DirectWindow
from kernelmill.lower.templates.convolution.planar.padded_tile import (
    PaddedTile,
    TileShape,
    fill_tile,
    tile_shape,
)
from kernelmill.lower.templates.convolution.planar.spec import (
    PlanarConvolution,
    Window,
    in_planes,
    of_planes,
    slides,
    window_roles,
)
from kernelmill.lower.templates.matmul.bind import ContractionBinding, read_operand
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.packing import pack_panels
from kernelmill.lower.templates.matmul.schedule import contraction_candidates
from kernelmill.lower.templates.matmul.spec import Contraction, FillPanel, Operand, Roles
from kernelmill.lower.templates.matmul.template import MatmulTemplate


@dataclass(frozen=True)
class WindowPanels:
    """A contraction's `PanelSource`: keeps a padded input tile, and copies from it the positions of
    a panel, one run of them for each output row."""

    window: Window

    def run(self, lanes: int, vectors: int) -> int:
        """Return the vectors that hold any run of a panel's positions in one row of output."""
        width = self.window.outputs[1]
        return vectors if not isinstance(width, int) else min(vectors, part_count(width, lanes))

    def row_operations(self, width: int, run: int) -> int:
        """Return the vector operations for runs of `width` positions, of one channel and tap."""
        return 5 * (part_count(width, size_hint(self.window.outputs[1])) + 1) * run

    def kept(self, depth: Dim, columns: Dim, lanes: int, run: int) -> KeptTile:
        """Return the tile for so many channels and positions."""
        slack = max(run, 2) * lanes
        return KeptTile(self.window, tile_shape(self.window, depth, columns, lanes, slack), run)


@dataclass(frozen=True)
class KeptTile:
    """The padded input tile that panels are copied from, in runs of so many vectors."""

    window: Window
    shape: TileShape
    run: int

    @property
    def elements(self) -> Dim:
        """All of the tile."""
        return self.shape.elements

    def prepare(
        self, context: EmitContext, batch: Dims, start: Dim, depth: Depth, begin: Dim, end: Dim
    ) -> FillPanel:
        """Emit the tile for the windows at positions [begin, end)."""
        tile = fill_tile(context, self.window, self.shape, batch, start, depth, (begin, end))

        def fill(begin: Dim, end: Dim, start: Dim, stride: int) -> None:
            _copy_windows(tile, self.run, begin, end, start, stride)

        return fill


def _copy_windows(
    tile: PaddedTile, run: int, begin: Dim, end: Dim, start: Dim, stride: int
) -> None:
    """Copy the positions [begin, end) of a panel, one run of them for each output row.

    Runs are copied in whole vectors, each overwriting what the one before it wrote too much; the
    panel's rows are long enough for the last.
    """
    context, window, depth = tile.context, tile.window, tile.depth
    builder, lanes, width = context.builder, context.lane.count, window.outputs[1]
    high, wide = window.kernel
    first, last = floordiv(begin, width), floordiv(end - 1, width)
    with builder.loop(first, last + 1, prefix="row") as row:
        skipped = maximum(0, begin - row.index * width)
        target = start + row.index * width + skipped - begin
        with (
            builder.loop(depth.start, depth.stop, prefix="c") as c,
            builder.loop(0, high, prefix="i") as i,
            builder.loop(0, wide, prefix="j", unroll=isinstance(wide, int)) as j,
        ):
            k = (c.index, i.index, j.index)
            down, across = i.index * window.dilation[0], j.index * window.dilation[1]
            source = tile.place(c.index, row.index, down, across) + skipped
            panel_row = target + depth.number(k) * stride
            for v in range(run):
                context.write(panel_row + v * lanes, tile.vector(source + v * lanes))


@dataclass(frozen=True)
class PanelWindow:
    """The product of the weights with panels of windows."""

    blocked: Blocked

    @classmethod
    def plan(cls, planar: PlanarConvolution, machine: Machine, candidate: Candidate) -> PanelWindow:
        """Plan the schedule, which every convolution can have."""
        return cls(Blocked.plan(planar.contraction, machine, candidate))

    @property
    def packed_rows(self) -> int:
        """Number of rows of a panel of constant weights."""
        return self.blocked.rows

    def widens(self, spec: PlanarConvolution, machine: Machine) -> bool:
        """Return whether constant weights of a half type are widened when they are packed, since
        each panel of windows reads all of them."""
        return widening_pays(spec.contraction.n, self.blocked.width, machine)

    @property
    def work(self) -> Dim:
        """Estimated nanoseconds of all tasks on one core."""
        return self.blocked.work

    def candidates(self, spec: PlanarConvolution) -> Sequence[Candidate]:
        """Return other register tiles and tasks."""
        return contraction_candidates(spec.contraction, self.blocked)

    def emit(self, builder: KernelBuilder, spec: PlanarConvolution) -> None:
        """Write the kernel's body, and set its `tasks` and `scratch`."""
        self.blocked.emit_kernel(builder, spec.contraction)


Schedule = DirectWindow | PanelWindow
"""In order of preference; the last one accepts every convolution."""

_KINDS: tuple[type[Schedule], ...] = get_args(Schedule)


def plan_planar(spec: PlanarConvolution, machine: Machine, candidate: Candidate) -> Schedule:
    """Plan the schedule for this processor, with the sizes that the candidate fixes."""
    plans = (kind.plan(spec, machine, candidate) for kind in _KINDS)
    return next(plan for plan in plans if plan is not None)


@dataclass(frozen=True)
class WeightPanels:
    """Panels of so many output channels, in another `dtype` than the weights' if one is given."""

    rows: int
    dtype: DType | None


class PlanarBinding(Binding[PlanarConvolution]):
    """A group around a convolution, with vectors of pixels."""

    @cached_property
    def roles(self) -> Roles:
        """Roles of the convolution's sizes and elements in a contraction."""
        return window_roles(self.planes)

    @cached_property
    def planes(self) -> Node:
        """The convolution as one of planes."""
        return in_planes(self.seed)

    def packing(self, candidate: Candidate) -> WeightPanels:
        """Return the panels that the cost model would want of constant weights."""
        planar = self.spec(self.context.emitter(PackedWeights()), PackedWeights())
        spec = planar.contraction
        packed = replace(planar, contraction=replace(spec, a=replace(spec.a, packed="a")))
        schedule = plan_planar(packed, self.context.machine, candidate)
        half = is_half(self.roles.a.dtype)
        widens = half and schedule.widens(planar, self.context.machine)
        return WeightPanels(schedule.packed_rows, spec.accumulate if widens else None)

    def pack(self, packing: WeightPanels) -> PackedWeights:
        """Pack the weights, if they are constant and the same for every image."""
        return PackedWeights(
            a=pack_panels(self.context, self.roles.left, packing.rows, dtype=packing.dtype)
        )

    def spec(self, emitter: Emitter, packed: PackedWeights) -> PlanarConvolution:
        """Return the contraction, with packed weights read from their panels."""
        roles, window = self.roles, self._window(emitter)
        a = read_operand(emitter, roles.left)
        if packed.a is not None:
            a = Operand(None, packed=emitter.param(packed.a, "in"))
        b = Operand(None, Along.OUTER, direct=False, source=WindowPanels(window))
        epilogue = Epilogue(emitter, self.context.group, self.context.targets)
        contraction = Contraction(
            roles.batch, roles.m, roles.n, roles.k, a, b, accumulator(roles.a.dtype),
            lambda b, batch, m, n, lane, sums: epilogue.store(
                of_planes(self.seed, roles.result_index(batch, m, n)), lane, sums
            ),
        )  # fmt: skip
        return PlanarConvolution(contraction, window)

    def _window(self, emitter: Emitter) -> Window:
        node = self.planes
        x, weight = node.operands
        channels, dtype = weight.shape[1], accumulator(x.dtype)

        def load(
            _: KernelBuilder, bi: Dims, channel: Dim, position: tuple[Dim, Dim], lane: Lane
        ) -> Register:
            return emitter.read(x, (bi[0], bi[1] * channels + channel, *position), lane, dtype)

        def both(values: Any) -> tuple[Any, Any]:
            down, across = values
            return down, across

        return Window(
            load, both(x.shape[2:]), both(node.result.shape[2:]), both(weight.shape[2:]),
            both(node.attrs["stride"]), both(node.attrs["dilation"]), both(node.attrs["padding"]),
        )  # fmt: skip


class Planar(Template[PlanarConvolution, Schedule]):
    """Windows over images of one to three axes."""

    name, layout = "convolution", "planar"

    def matches(self, context: GroupContext) -> bool:
        """Return whether windows have several pixels, or are apart from the image's pixels."""
        seed = context.group.seed
        return seed is not None and seed.op == "conv" and slides(seed)

    def bind(self, context: GroupContext) -> PlanarBinding:
        """Bind the node's windows, and the way its image is read."""
        return PlanarBinding(context)

    def schedule(self, spec: PlanarConvolution, machine: Machine, candidate: Candidate) -> Schedule:
        """Return the cost model's schedule."""
        return plan_planar(spec, machine, candidate)

    def candidates(self, spec: PlanarConvolution, schedule: Schedule) -> Sequence[Candidate]:
        """Return other register tiles and tasks of panels."""
        return schedule.candidates(spec)

    def cost(self, schedule: Schedule) -> Dim:
        return schedule.work

    def emit(self, emitter: Emitter, spec: PlanarConvolution, schedule: Schedule) -> None:
        schedule.emit(emitter.builder, spec)


class Pixels(MatmulTemplate):
    """Any convolution as a product of matrices; it is asked last, as for windows of one pixel."""

    name, layout = "convolution", "pixels"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is around a convolution."""
        return context.group.seed is not None and context.group.seed.op == "conv"

    def bind(self, context: GroupContext) -> ContractionBinding:
        """Bind the convolution as a product."""
        return ContractionBinding(context, lambda node, _: window_roles(node))
