"""Which results of kernels are written over what they are computed from.

The sum of a residual and a branch then needs no memory of its own, and goes into lines that the
caches hold already: they were just read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernelmill.kernel.in_place import overwritable
from kernelmill.kernel.ir import Kernel
from kernelmill.plan.arena import ArenaBuffer
from kernelmill.plan.ir import BufferSpec, Launch, Step


def heirs(
    steps: Sequence[Step],
    kernels: Mapping[str, Kernel],
    lives: Mapping[int, ArenaBuffer],
    buffers: Sequence[BufferSpec],
) -> dict[int, int]:
    """For arena buffers that may have the memory of another one: that one, each only once. `lives`
    are the lifetimes of all arena buffers."""
    known = {name: overwritable(kernel) for name, kernel in kernels.items()}
    found: dict[int, int] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, Launch) or not known[step.kernel]:
            continue
        for target, source in _pairs(step, kernels[step.kernel], known[step.kernel]):
            if target not in lives or source not in lives or target in found:
                continue
            dies = lives[source].last == number == lives[target].first
            same = lives[source].bytes == lives[target].bytes
            if dies and same and source not in found.values():
                found[target] = source
    return found


def _pairs(
    launch: Launch, kernel: Kernel, may: Mapping[str, frozenset[str]]
) -> Iterator[tuple[int, int]]:
    """(output, input) by their numbers in the plan, of buffers that the launch has once."""
    once = {
        buffer.name: number
        for buffer, number in zip(kernel.buffers, launch.buffers, strict=True)
        if launch.buffers.count(number) == 1
    }
    for target, sources in may.items():
        for source in sorted(sources):
            if target in once and source in once:
                yield once[target], once[source]
