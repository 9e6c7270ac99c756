"""Counters of programs, each number with the object that owns it.

Programs share memory, packed weights and weights: the gears of a model, its captures, its prefill
and its decode step. With the owner of each number, a sum counts it once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from kernelmill.core.dim import evaluate
from kernelmill.plan.ir import Launch, Plan

Count = tuple[str, Hashable, int]
"""A counter's name, its owner, and the number."""

OF_ONE_CALL = frozenset(("launches", "super_kernels", "aten_calls"))
"""Counters of one call: the largest of several programs counts."""


def summed(counts: Iterable[Count]) -> dict[str, int]:
    """Return the counters of all programs by name, each owner counted once."""
    found: dict[str, int] = {}
    for (name, _), value in {(name, owner): value for name, owner, value in counts}.items():
        known = found.get(name, 0)
        found[name] = max(known, value) if name in OF_ONE_CALL else known + value
    return found


SYMBOLIC_NS = 100
"""Extra time of a launch with symbolic sizes: addresses and ends of loops are computed."""

_SYMBOLIC_LOSS = 0.1
"""Share by which a kernel of symbolic sizes is slower, if unknown."""


def estimated_ns(plan: Plan, sizes: Mapping[str, int]) -> float:
    """Return nanoseconds of all launches on one core for these symbol values; ATen calls count as
    0. KeyError when work depends on a size that is known only during the call."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    spent = float(sum(evaluate(launch.work, sizes) for launch in launches))
    if not plan.symbols:
        return spent
    return spent * (1 + _SYMBOLIC_LOSS) + SYMBOLIC_NS * len(launches)
