"""Emits the kernel of a convolution along pixels, by its kind of schedule."""

from __future__ import annotations

from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.templates.convolution.planar.direct_window import emit_direct_window
from kernelmill.lower.templates.convolution.planar.schedule import DirectWindow, Schedule
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.emit import emit_contraction


def emit_planar(builder: KernelBuilder, spec: PlanarConvolution, schedule: Schedule) -> None:
    """Write the kernel's body, and set its `tasks` and `scratch`. The builder must be empty but for
    buffers, which the callbacks and packed weights name."""
    match schedule:
        case Blocked():
            emit_contraction(builder, spec.contraction, schedule)
        case DirectWindow():
            emit_direct_window(builder, spec, schedule)
