"""Emits the kernel of a contraction, by its kind of schedule."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dim import Dim, floordiv, mod
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.context import BlockedContext, ContractionContext
from kernelmill.lower.templates.matmul.emit_blocked import emit_blocked
from kernelmill.lower.templates.matmul.found_rows import ContextT, emit_found_rows
from kernelmill.lower.templates.matmul.inner_product import InnerProduct, emit_inner_products
from kernelmill.lower.templates.matmul.pieced import Pieced, PiecedTask, emit_pieced
from kernelmill.lower.templates.matmul.schedule import Schedule
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tiled import Tiled, TiledContext, emit_tiled


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
    rest = floordiv(task, rows)
    lane = Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes)
    batch = unravel(floordiv(rest, columns), spec.batch)
    place = batch, mod(task, rows), mod(rest, columns)
    match schedule:
        case Blocked():
            blocked = BlockedContext(builder, lane, spec.accumulate, spec, schedule, *place)
            _emit_rows(blocked, rest, emit_blocked)
        case Tiled():
            tiled = TiledContext(builder, lane, spec.accumulate, spec, schedule, *place)
            _emit_rows(tiled, rest, emit_tiled)
        case Pieced():
            emit_pieced(PiecedTask(builder, spec, schedule, *place), lane)
        case InnerProduct():
            emit_inner_products(
                ContractionContext(builder, lane, spec.accumulate, spec, schedule, *place)
            )


def _emit_rows(context: ContextT, rest: Dim, emit: Callable[[ContextT], None]) -> None:
    if context.spec.rows is None:
        emit(context)
    else:
        emit_found_rows(context, rest, context.spec.rows, emit)
