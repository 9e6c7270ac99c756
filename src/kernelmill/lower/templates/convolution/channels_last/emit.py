"""Emits the kernel of a convolution: its grid of tasks, and what one of them does."""

from __future__ import annotations

from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.tasks import task_index
from kernelmill.lower.templates.convolution.channels_last.context import (
    DenseContext,
    DepthwiseContext,
)
from kernelmill.lower.templates.convolution.channels_last.dense import convolve
from kernelmill.lower.templates.convolution.channels_last.depthwise import convolve_depthwise
from kernelmill.lower.templates.convolution.channels_last.schedule import Dense, Depthwise, Schedule
from kernelmill.lower.templates.convolution.channels_last.spec import Convolution


def emit_convolution(builder: KernelBuilder, spec: Convolution, schedule: Schedule) -> None:
    """Write the kernel's body, and set its `tasks` and `scratch`. The builder must be empty but for
    buffers, which the callbacks and the packed weights name."""
    geometry = spec.geometry
    groups = 1 if geometry.depthwise else geometry.groups
    grid = (geometry.images, groups, schedule.row_blocks(), schedule.panel_blocks(geometry))
    tasks = geometry.images
    for size in grid[1:]:
        tasks = tasks * size
    builder.set_tasks(tasks)
    image, group, row_block, panel_block = task_index(builder, grid)
    lane = Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes)
    place = image, group, row_block, panel_block
    match schedule:
        case Dense():
            dense = DenseContext(builder, lane, geometry.accumulate, spec, schedule, *place)
            builder.kernel.scratch = dense.scratch_bytes()
            convolve(dense)
        case Depthwise():
            depthwise = DepthwiseContext(builder, lane, geometry.accumulate, spec, schedule, *place)
            builder.kernel.scratch = depthwise.scratch_bytes()
            convolve_depthwise(depthwise)
