"""The layouts with vectors of pixels: windows from a padded input tile, or any convolution as a
product."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import GroupContext, Template
from kernelmill.lower.templates.convolution.planar.bind import PlanarBinding
from kernelmill.lower.templates.convolution.planar.roles import pixel_roles, slides
from kernelmill.lower.templates.convolution.planar.schedule import Schedule, plan_planar
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution
from kernelmill.lower.templates.matmul.bind import ContractionBinding
from kernelmill.lower.templates.matmul.template import MatmulTemplate


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
