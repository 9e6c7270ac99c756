"""The schedules of a contraction, and the choice among them.

Shape classes: one kernel with several schedules of a contraction, chosen by the number of rows.

A copy of B's panels into scratch pays off for many rows, and not for few. So the kernel of a
symbolic number of rows has a body for each class of sizes, and branches once in each task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from kernelmill.core.dim import Dim, bounds, evaluate, maximum
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.schedule.template import SizeClass, emit_by_size
from kernelmill.lower.templates.matmul.along_k import MOST_ROWS, InnerProduct
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.blocked_tiles import FromRegisters, ThroughScratch
from kernelmill.lower.templates.matmul.few_columns import FewColumns
from kernelmill.lower.templates.matmul.four_bits import FourBits
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


RowClasses = tuple[SizeClass[Schedule], ...]
"""By the number of rows, smallest first; the last is for all others."""


def plan_classes(spec: Contraction, machine: Machine, schedule: Schedule) -> RowClasses:
    """Plan the classes, smallest first; `schedule` is that of the last. It is the only one for a
    known number of rows, and where every number of rows wants the same, as with a packed B: tiles
    have as many rows as there are anyway."""
    rest = SizeClass(None, schedule, schedule.tasks(spec))
    packed = spec.b.packed is not None or spec.b.panelled
    if isinstance(spec.m, int) or packed or spec.b.source is not None or spec.rows is not None:
        return (rest,)
    if schedule.any_rows:
        return (rest,)

    smaller: list[SizeClass[Schedule]] = []
    for rows in range(1, MOST_ROWS + 1):
        one = replace(spec, m=rows)
        plan = plan_contraction(one, machine)
        smaller.append(SizeClass(rows, plan, plan.tasks(one), exact=True))
    if not smaller[0].schedule.known_rows:
        one = replace(spec, m=schedule.rows)
        few = Blocked.plan(one, machine)
        if isinstance(few.sums, FromRegisters):
            few = replace(few, sums=ThroughScratch())
        smaller = [SizeClass(schedule.rows, few, few.tasks(one))]
    least = bounds(spec.m)[0] or 0
    kept = [each for each in smaller if each.most is not None and each.most >= least]
    if all(each.schedule.copies_b == schedule.copies_b for each in kept):
        return (rest,)
    return (*kept, rest)


def emit_classes(builder: KernelBuilder, spec: Contraction, classes: RowClasses) -> None:
    """Write the kernel's body with a branch for each class, and set `tasks` and `scratch`. The
    builder must be empty but for buffers."""
    if len(classes) == 1:
        classes[0].schedule.emit_kernel(builder, spec)
        return

    def body(schedule: Schedule, task: Dim, rows: Dim) -> None:
        schedule.emit_task(builder, replace(spec, m=rows), task)

    scratch: Dim = 0
    for one in classes:
        scratch = maximum(scratch, one.schedule.scratch_bytes(spec))
    builder.kernel.scratch = scratch
    emit_by_size(builder, spec.m, classes, body)


def contraction_loss(
    spec: Contraction, classes: RowClasses, sizes: Mapping[str, int], machine: Machine
) -> float:
    """Return the `Loss` (lower/schedule/template.py) of the class that has these sizes."""
    if spec.rows is not None or not all(isinstance(size, int) for size in (spec.n, *spec.k)):
        return math.inf
    batch, rows = [evaluate(size, sizes) for size in spec.batch], evaluate(spec.m, sizes)
    if not rows or not all(batch):
        return 0.0
    chosen = next(one for one in classes if one.most is None or rows <= one.most)
    if chosen.exact:
        return 0.0
    known = replace(spec, batch=tuple(batch), m=rows)
    return chosen.schedule.loss(plan_contraction(known, machine), known, machine)
