"""The layouts with vectors of pixels: windows from a padded input tile, or any convolution as a
product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import accumulator
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.emit.widened import is_half
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.epilogue import Epilogue
from kernelmill.lower.schedule.template import Binding, GroupContext, Template
from kernelmill.lower.templates.convolution.planar.panels import WindowPanels
from kernelmill.lower.templates.convolution.planar.roles import pixel_roles, slides, window_roles
from kernelmill.lower.templates.convolution.planar.schedule import Schedule, plan_planar
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution, Window
from kernelmill.lower.templates.matmul.bind import ContractionBinding, read_operand
from kernelmill.lower.templates.matmul.packing import pack_panels
from kernelmill.lower.templates.matmul.roles import Roles
from kernelmill.lower.templates.matmul.spec import Contraction, Operand
from kernelmill.lower.templates.matmul.template import MatmulTemplate


@dataclass(frozen=True)
class WeightPanels:
    """Panels of so many output channels, in another `dtype` than the weights' if one is given."""

    rows: int
    dtype: DType | None


class PlanarBinding(Binding[PlanarConvolution]):
    """A group around a convolution, with vectors of pixels."""

    def __init__(self, context: GroupContext) -> None:
        assert context.group.seed is not None
        self.context = context
        self.seed = context.group.seed

    @cached_property
    def roles(self) -> Roles:
        """Roles of the convolution's sizes and elements in a contraction."""
        return window_roles(self.seed)

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
                roles.result_index(batch, m, n), lane, sums
            ),
        )  # fmt: skip
        return PlanarConvolution(contraction, window)

    def _window(self, emitter: Emitter) -> Window:
        node = self.seed
        x, weight = node.operands
        outputs, channels, dtype = node.result.shape[2:], weight.shape[1], accumulator(x.dtype)
        line = len(outputs) == 1

        def load(
            _: KernelBuilder, bi: Dims, channel: Dim, position: tuple[Dim, Dim], lane: Lane
        ) -> Register:
            at = position[1:] if line else position
            return emitter.read(x, (bi[0], bi[1] * channels + channel, *at), lane, dtype)

        def numbers(name: str, missing: int) -> tuple[int, int]:
            values = tuple(int(size) for size in node.attrs[name])  # type: ignore[union-attr]
            return (missing, values[0]) if line else (values[0], values[1])

        def both(sizes: Dims) -> tuple[Dim, Dim]:
            return (1, sizes[0]) if line else (sizes[0], sizes[1])

        return Window(
            load, both(x.shape[2:]), both(outputs), both(weight.shape[2:]),
            numbers("stride", 1), numbers("dilation", 1), numbers("padding", 0),
        )  # fmt: skip


class Planar(Template[PlanarConvolution, Schedule]):
    """Windows over images of one or two axes."""

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
        """Return estimated nanoseconds of all tasks on one core."""
        return schedule.work

    def emit(self, emitter: Emitter, spec: PlanarConvolution, schedule: Schedule) -> None:
        """Write the kernel's body, its tasks and scratch."""
        schedule.emit(emitter.builder, spec)


class Pixels(MatmulTemplate):
    """Any convolution as a product, such as one whose windows are the image's pixels."""

    name, layout = "convolution", "pixels"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is around a convolution."""
        return context.group.seed is not None and context.group.seed.op == "conv"

    def bind(self, context: GroupContext) -> ContractionBinding:
        """Bind the convolution as a product."""
        return ContractionBinding(context, pixel_roles)
