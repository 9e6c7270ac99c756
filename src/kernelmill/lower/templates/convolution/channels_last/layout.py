"""The layout with vectors of channels: constant weights, and results stored channels last."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import GroupContext, UnknownLoss
from kernelmill.lower.templates.convolution.channels_last.bind import (
    ChannelsLastBinding,
    convolves_last,
)
from kernelmill.lower.templates.convolution.channels_last.emit import emit_convolution
from kernelmill.lower.templates.convolution.channels_last.schedule import (
    Schedule,
    convolution_candidates,
)
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution


@dataclass(frozen=True)
class ChannelsLast(UnknownLoss):
    """Convolutions of one or two axes, depthwise ones too."""

    name: str = "channels last"

    def matches(self, context: GroupContext) -> bool:
        """Return whether weights are constant and results are stored channels last."""
        return convolves_last(context)

    def bind(self, context: GroupContext) -> ChannelsLastBinding:
        """Bind the node's sizes, and the way its image is read."""
        return ChannelsLastBinding(context)

    def schedule(
        self, spec: Convolution[Schedule], machine: Machine, candidate: Candidate
    ) -> Schedule:
        """Return the schedule that the weights are packed for."""
        return spec.schedule

    def candidates(self, spec: Convolution[Schedule], schedule: Schedule) -> Sequence[Candidate]:
        """Return other register tiles, blocks of channels and tasks."""
        return convolution_candidates(spec.geometry, schedule)

    def cost(self, spec: Convolution[Schedule], schedule: Schedule, machine: Machine) -> Dim:
        """Return estimated nanoseconds of all tasks on one core."""
        return schedule.work

    def emit(self, emitter: Emitter, spec: Convolution[Schedule], schedule: Schedule) -> None:
        """Write the kernel's body, its tasks and scratch."""
        emit_convolution(emitter.builder, spec, schedule)
