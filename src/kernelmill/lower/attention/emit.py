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
from kernelmill.lower.views import unravel


def emit_attention(
    builder: KernelBuilder, spec: AttentionSpec, schedule: AttentionSchedule
) -> None:
    """Append the body of one task. The kernel must have the schedule's `tasks` and `scratch`."""
    frame = Frame(builder, spec, schedule, lay_out(spec, schedule))
    sizes = (*spec.batch[:-1], spec.batch[-1] // schedule.heads, schedule.row_blocks)
    *outer, block = (
        _bind(builder, position, size)
        for position, size in zip(unravel(builder.task, sizes), sizes, strict=True)
    )
    if schedule.streamed:
        emit_streamed(frame, (*outer[:-1], outer[-1] * schedule.heads))
    else:
        emit_packed(frame, tuple(outer), block * schedule.rows)


def _bind(builder: KernelBuilder, position: Dim, size: Dim) -> Dim:
    """The position as a symbol of its own, so that expressions made of it stay short."""
    if isinstance(position, int):
        return position
    return builder.let(builder.index(position), 0, size - 1)
