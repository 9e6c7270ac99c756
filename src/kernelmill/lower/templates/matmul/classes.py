"""Shape classes: one kernel with several schedules of a contraction, chosen by the number of rows.

What pays for many rows, such as putting panels of B into scratch, is a loss for few. The kernel of
a symbolic number of rows therefore holds a body for each class of sizes, and branches once a task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, bounds, evaluate, maximum
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.schedule.classes import SizeClass, emit_by_size
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.blocked_tiles import FromRegisters, ThroughScratch
from kernelmill.lower.templates.matmul.emit import emit_contraction, emit_task
from kernelmill.lower.templates.matmul.inner_product import MOST_ROWS
from kernelmill.lower.templates.matmul.schedule import Schedule, plan_contraction
from kernelmill.lower.templates.matmul.spec import Contraction


@dataclass(frozen=True)
class RowClass:
    """The schedule of contractions of up to `most` rows, of all others with None. With `exact`
    there is nothing else in the class than that number of rows."""

    most: int | None
    schedule: Schedule
    exact: bool = False

    def tasks(self, spec: Contraction) -> Dim:
        """Return the number of tasks of any size in the class but 0."""
        return self.schedule.tasks(spec if self.most is None else replace(spec, m=self.most))


def plan_classes(spec: Contraction, machine: Machine, schedule: Schedule) -> tuple[RowClass, ...]:
    """Plan the classes, smallest first; `schedule` is that of the last. It is the only one for a
    known number of rows, and where every number of rows wants the same, as with a packed B: tiles
    have as many rows as there are anyway."""
    rest = RowClass(None, schedule)
    packed = spec.b.packed is not None or spec.b.panelled
    if isinstance(spec.m, int) or packed or spec.b.source is not None or spec.rows is not None:
        return (rest,)
    if schedule.any_rows:
        return (rest,)

    smaller = [
        RowClass(rows, plan_contraction(replace(spec, m=rows), machine), exact=True)
        for rows in range(1, MOST_ROWS + 1)
    ]
    if not smaller[0].schedule.known_rows:
        few = Blocked.plan(replace(spec, m=schedule.rows), machine)
        if isinstance(few.sums, FromRegisters):
            few = replace(few, sums=ThroughScratch())
        smaller = [RowClass(schedule.rows, few)]
    least = bounds(spec.m)[0] or 0
    kept = [one for one in smaller if one.most is not None and one.most >= least]
    if all(one.schedule.copies_b == schedule.copies_b for one in kept):
        return (rest,)
    return (*kept, rest)


def emit_classes(builder: KernelBuilder, spec: Contraction, classes: Sequence[RowClass]) -> None:
    """Write the kernel's body with a branch for each class, and set `tasks` and `scratch`. The
    builder must be empty but for buffers."""
    if len(classes) == 1:
        emit_contraction(builder, spec, classes[0].schedule)
        return

    def body(one: RowClass, task: Dim, rows: Dim) -> None:
        known = one.most if one.exact and one.most is not None else rows
        emit_task(builder, replace(spec, m=known), one.schedule, task)

    scratch: Dim = 0
    for one in classes:
        scratch = maximum(scratch, one.schedule.scratch_bytes(spec))
    builder.kernel.scratch = scratch
    sized = [SizeClass(one.most, one.tasks(spec), one) for one in classes]
    emit_by_size(builder, spec.m, sized, body)


def contraction_loss(
    spec: Contraction, classes: Sequence[RowClass], sizes: Mapping[str, int], machine: Machine
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
