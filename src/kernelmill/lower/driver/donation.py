"""Buffer donation: results that a kernel writes over one of its inputs.

The sum of a residual and a branch then needs no memory of its own, and goes into lines that the
caches hold already: they were just read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernelmill.kernel.ir import Kernel
from kernelmill.plan.arena import ArenaBuffer
from kernelmill.plan.ir import Launch, Step


def donated_buffers(
    steps: Sequence[Step],
    kernels: Mapping[str, Kernel],
    lives: Mapping[int, ArenaBuffer],
) -> dict[int, int]:
    """Map arena buffers to the buffer whose memory is donated to them, each donor only once.
    `lives` are the lifetimes of all arena buffers."""
    found: dict[int, int] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, Launch):
            continue
        for target, source in _pairs(step, kernels[step.kernel]):
            if target not in lives or source not in lives or target in found:
                continue
            dies = lives[source].last == number == lives[target].first
            same = lives[source].bytes == lives[target].bytes
            if dies and same and source not in found.values():
                found[target] = source
    return found


def _pairs(launch: Launch, kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield (output, input) by their numbers in the plan, of buffers that the launch has once."""
    if not any(buffer.over for buffer in kernel.buffers):
        return
    once = {
        buffer.name: number
        for buffer, number in zip(kernel.buffers, launch.buffers, strict=True)
        if launch.buffers.count(number) == 1
    }
    for buffer in kernel.buffers:
        for source in buffer.over:
            if buffer.name in once and source in once:
                yield once[buffer.name], once[source]
