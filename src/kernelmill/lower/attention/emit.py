"""The attention kernel: finds the task's place, and hands over to the path of the schedule."""

from __future__ import annotations

from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.attention.frame import Frame
from kernelmill.lower.attention.layout import lay_out
from kernelmill.lower.attention.packed import emit_packed
from kernelmill.lower.attention.schedule import AttentionSchedule
from kernelmill.lower.attention.spec import AttentionSpec
from kernelmill.lower.attention.streamed import emit_streamed
from kernelmill.lower.tasks import task_index


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
