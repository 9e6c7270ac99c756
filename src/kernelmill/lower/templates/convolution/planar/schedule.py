"""Schedules of convolutions along pixels."""

from __future__ import annotations

from typing import get_args

from kernelmill.core.target.machine import Machine
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.templates.convolution.planar.direct_window import DirectWindow
from kernelmill.lower.templates.convolution.planar.panel_window import PanelWindow
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution

Schedule = DirectWindow | PanelWindow
"""In order of preference; the last one accepts every convolution."""

_KINDS: tuple[type[Schedule], ...] = get_args(Schedule)


def plan_planar(spec: PlanarConvolution, machine: Machine, candidate: Candidate) -> Schedule:
    """Plan the schedule for this processor, with the sizes that the candidate fixes."""
    plans = (kind.plan(spec, machine, candidate) for kind in _KINDS)
    return next(plan for plan in plans if plan is not None)
