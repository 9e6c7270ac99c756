"""Emits the kernel of a contraction under its schedule."""

from __future__ import annotations

from kernelmill.core.dim import Dim, floordiv, mod
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.templates.matmul.schedule import Schedule
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tile_grid import TaskPlace


def emit_contraction(builder: KernelBuilder, spec: Contraction, schedule: Schedule) -> None:
    """Write the kernel's body, and set its `tasks` and `scratch`. The builder must be empty but for
    buffers, which the callbacks and packed operands name."""
    tasks = schedule.tasks(spec)
    builder.set_tasks(tasks)
    builder.kernel.scratch = schedule.scratch_bytes(spec)
    if tasks != 0:
        emit_task(builder, spec, schedule, builder.task)


def emit_task(builder: KernelBuilder, spec: Contraction, schedule: Schedule, task: Dim) -> None:
    """Append the work of one of the schedule's tasks."""
    rows, columns = schedule.row_blocks(spec), schedule.column_blocks(spec)
    number = floordiv(task, rows)
    lane = Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes)
    batch = unravel(floordiv(number, columns), spec.batch)
    place = TaskPlace(builder, lane, spec, batch, mod(task, rows), mod(number, columns), number)
    schedule.emit(place)
