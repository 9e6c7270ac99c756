"""A super kernel as one launch of its driver."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmill.core.dim import evaluate
from kernelmill.plan.ir import Launch, Part, Plan, SuperKernel

LINES_BUFFER = -2
"""Stands for the threads' cache lines among the buffers of a driver."""


def whole_launch(plan: Plan, super_kernel: SuperKernel) -> Launch:
    """Return the launch that stands for all of a super kernel's.

    Its buffers are the lines, then those of each sub-kernel; its tasks say how many threads can be
    busy at a time: the widest launch of each part of the team, together.
    """
    launches = list(sub_launches(plan, super_kernel))
    widest: dict[Part, int] = {}
    for launch, part in zip(launches, super_kernel.parts, strict=True):
        widest[part] = max(widest.get(part, 0), evaluate(launch.tasks, {}))
    buffers = (LINES_BUFFER, *(buffer for launch in launches for buffer in launch.buffers))
    work = sum(evaluate(launch.work, {}) for launch in launches)
    return Launch(super_kernel.name, buffers, (), sum(widest.values()), 0, work)


def sub_launches(plan: Plan, super_kernel: SuperKernel) -> Iterator[Launch]:
    """Yield the launches of a super kernel, in order."""
    for step in plan.steps[super_kernel.first : super_kernel.last]:
        assert isinstance(step, Launch)
        yield step
