"""Emits the kernel of a convolution: its grid of tasks, and the code of one."""

from __future__ import annotations

from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import ConvolutionPlace
from kernelmill.lower.templates.convolution.channels_last.schedule import Schedule
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution


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
