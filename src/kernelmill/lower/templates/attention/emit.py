"""The attention kernel: finds what the task works on, and emits it packed, tiled or streamed."""

from __future__ import annotations

from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.emit.tasks import task_index
from kernelmill.lower.templates.attention.context import AttentionContext
from kernelmill.lower.templates.attention.emit_packed import emit_packed
from kernelmill.lower.templates.attention.emit_streamed import emit_streamed
from kernelmill.lower.templates.attention.emit_tiled import emit_tiled
from kernelmill.lower.templates.attention.schedule import (
    AttentionSchedule,
    Packed,
    Streamed,
    Tiled,
)
from kernelmill.lower.templates.attention.scratch import scratch_layout
from kernelmill.lower.templates.attention.spec import AttentionSpec


def emit_attention(
    builder: KernelBuilder,
    spec: AttentionSpec,
    schedule: AttentionSchedule,
    task: Dim | None = None,
) -> None:
    """Append the body of one task. The kernel must have the schedule's `tasks` and `scratch`; with
    `task`, the number of one of them, more tasks than the schedule's."""
    context = AttentionContext(builder, spec, schedule, scratch_layout(spec, schedule))
    together = schedule.heads if isinstance(schedule, Streamed) else 1
    grid = (*spec.batch[:-1], spec.batch[-1] // together, schedule.row_blocks)
    *outer, block = task_index(builder, grid, task)
    batch, first = (*outer[:-1], outer[-1] * together), block * schedule.rows
    match schedule:
        case Streamed():
            emit_streamed(context, batch, first)
        case Packed():
            emit_packed(context, batch, first)
        case Tiled():
            emit_tiled(context, batch, first)
