"""How long the launches of a program take, as the cost model estimated them when it was lowered."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmill.core.dim import evaluate
from kernelmill.plan.ir import Launch, Plan

SYMBOLIC_NS = 100
"""More for a launch of a kernel of symbolic sizes: addresses and the ends of loops are computed."""

_SYMBOLIC_LOSS = 0.1
"""The part of its time that a kernel of symbolic sizes takes longer where nobody has said more."""


def estimated_ns(plan: Plan, sizes: Mapping[str, int]) -> float:
    """Nanoseconds of all launches on one core for these values of the plan's symbols; ATen calls
    count as none. KeyError when work depends on a size that is known only during the call."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    spent = float(sum(evaluate(launch.work, sizes) for launch in launches))
    if not plan.symbols:
        return spent
    return spent * (1 + _SYMBOLIC_LOSS) + SYMBOLIC_NS * len(launches)
