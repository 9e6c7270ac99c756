"""The schedules of a contraction, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from kernelmill.core.target.machine import Machine
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.few_columns import FewColumns
from kernelmill.lower.templates.matmul.four_bits import FourBits
from kernelmill.lower.templates.matmul.inner_product import InnerProduct
from kernelmill.lower.templates.matmul.packing import Layout, Packable
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tiled import Tiled

Schedule = FourBits | Tiled | InnerProduct | FewColumns | Blocked
"""In order of preference; the last one accepts every contraction."""

_KINDS: tuple[type[Schedule], ...] = get_args(Schedule)


def plan_contraction(spec: Contraction, machine: Machine, candidate: Candidate = OPEN) -> Schedule:
    """Plan the schedule for this contraction on this processor, with the sizes that the candidate
    fixes. Depends on nothing else."""
    plans = (kind.plan(spec, machine, candidate) for kind in _KINDS)
    return next(plan for plan in plans if plan is not None)


def choose_layout(product: Packable, machine: Machine, candidate: Candidate = OPEN) -> Layout:
    """Return the layout of constant operands for the schedule that will read them."""
    layouts = (kind.layout(product, machine, candidate) for kind in _KINDS)
    return next(layout for layout in layouts if layout is not None)


def contraction_candidates(spec: Contraction, schedule: Schedule) -> Sequence[Candidate]:
    """Return candidates to try in place of the cost model's schedule, the likelier first; none
    where a size is symbolic."""
    sizes = (*spec.batch, spec.m, spec.n, *spec.k)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return ()
    return schedule.candidates(spec)
