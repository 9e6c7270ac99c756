"""Estimated duration of a program's launches, from the cost model at lowering."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmill.core.dim import evaluate
from kernelmill.plan.ir import Launch, Plan

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
