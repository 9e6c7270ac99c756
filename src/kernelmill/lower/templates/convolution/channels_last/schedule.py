"""The schedules of a convolution along channels, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.schedule.candidate import OPEN, Candidate, first_of, other_cuts
from kernelmill.lower.templates.convolution.channels_last.dense import Dense
from kernelmill.lower.templates.convolution.channels_last.depthwise import Depthwise
from kernelmill.lower.templates.convolution.channels_last.spec import Geometry

Schedule = Depthwise | Dense
"""In order of preference; the last one accepts every convolution."""

_KINDS: tuple[type[Schedule], ...] = get_args(Schedule)


def plan_convolution(geometry: Geometry, machine: Machine, candidate: Candidate = OPEN) -> Schedule:
    """Plan the schedule for this processor, with the sizes that the candidate fixes."""
    plans = (kind.plan(geometry, machine, candidate) for kind in _KINDS)
    return next(plan for plan in plans if plan is not None)


def convolution_candidates(geometry: Geometry, schedule: Schedule) -> list[Candidate]:
    """Return candidates to try in place of the cost model's schedule, the likelier first; none for
    a symbolic number of images."""
    if not isinstance(geometry.images, int):
        return []
    return first_of(schedule.candidates(geometry), _tasks(geometry, schedule))


def _tasks(geometry: Geometry, schedule: Schedule) -> Iterator[Candidate]:
    rows, panels = schedule.rows, schedule.panels
    most_rows, most_panels = schedule.outputs[0], schedule.most_panels(geometry)
    for down, across in (*other_cuts(rows, panels), (rows, most_panels), (most_rows, panels)):
        down = min(part_count(down, schedule.down) * schedule.down, most_rows)
        across = min(across, most_panels)
        if (down, across) != (rows, panels):
            yield Candidate(rows=down, panels=across)
