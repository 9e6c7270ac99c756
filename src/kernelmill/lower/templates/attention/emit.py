"""The attention kernel: finds the task's place, and hands over to the path of the schedule."""

from __future__ import annotations

from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.emit.tasks import task_index
from kernelmill.lower.templates.attention.frame import Frame
from kernelmill.lower.templates.attention.layout import lay_out
from kernelmill.lower.templates.attention.packed import emit_packed
from kernelmill.lower.templates.attention.schedule import AttentionSchedule
from kernelmill.lower.templates.attention.spec import AttentionSpec
from kernelmill.lower.templates.attention.streamed import emit_streamed


def emit_attention(
    builder: KernelBuilder,
    spec: AttentionSpec,
    schedule: AttentionSchedule,
    task: Dim | None = None,
) -> None:
    """Append the body of one task. The kernel must have the schedule's `tasks` and `scratch`; with
    `task`, the number of one of them, more tasks than the schedule's."""
    frame = Frame(builder, spec, schedule, lay_out(spec, schedule))
    heads = spec.batch[-1] // schedule.heads
    grid = (*spec.batch[:-1], heads, schedule.row_blocks)
    *outer, block = task_index(builder, grid, task)
    if schedule.streamed:
        emit_streamed(frame, (*outer[:-1], outer[-1] * schedule.heads), block * schedule.rows)
    else:
        emit_packed(frame, tuple(outer), block * schedule.rows)
