"""The layout with vectors of channels: constant weights, and results stored channels last."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import GroupContext, Template
from kernelmill.lower.templates.convolution.channels_last.bind import (
    ChannelsLastBinding,
    convolves_last,
)
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import ConvolutionPlace
from kernelmill.lower.templates.convolution.channels_last.schedule import (
    Schedule,
    convolution_candidates,
)
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution


class ChannelsLast(Template[Convolution[Schedule], Schedule]):
    """Convolutions of one or two axes, depthwise ones too."""

    name, layout = "convolution", "channels last"

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

    def cost(self, schedule: Schedule) -> Dim:
        """Return estimated nanoseconds of all tasks on one core."""
        return schedule.work

    def emit(self, emitter: Emitter, spec: Convolution[Schedule], schedule: Schedule) -> None:
        """Write the kernel's body, its tasks and scratch."""
        emit_convolution(emitter.builder, spec, schedule)


def emit_convolution(
    builder: KernelBuilder, spec: Convolution[Schedule], schedule: Schedule
) -> None:
    """Write the kernel's body, and set its `tasks` and `scratch`. The builder must be empty but for
    buffers, which the callbacks and the packed weights name."""
    geometry = spec.geometry
    grid = (
        geometry.images, schedule.groups(geometry), schedule.row_blocks(),
        schedule.panel_blocks(geometry),
    )  # fmt: skip
    tasks = geometry.images
    for size in grid[1:]:
        tasks = tasks * size
    builder.set_tasks(tasks)
    image, group, row_block, panel_block = task_index(builder, grid)
    lane = Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes)
    schedule.emit(ConvolutionPlace(builder, lane, spec, image, group, row_block, panel_block))
