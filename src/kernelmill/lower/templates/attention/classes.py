"""Shape classes: one attention kernel that works in several ways, by how many query rows there are.

With few rows keys and values are read in place, with many they are packed. A kernel of a symbolic
number of rows has a body for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from kernelmill.core.dim import Dim, bounds, evaluate
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.schedule.classes import SizeClass, emit_by_size
from kernelmill.lower.templates.attention.block_sizes import FEW_ROWS
from kernelmill.lower.templates.attention.schedule import (
    AttentionSchedule,
    emit_attention,
    plan_attention,
)
from kernelmill.lower.templates.attention.spec import AttentionSpec

_EXACT_ROWS = (1, 2)
"""Numbers of rows that have a body of their own: decoding, with a speculated token or without."""

_ROWS_AT_A_TIME = 4
"""Up to `FEW_ROWS` rows are worked on so many at a time; those past the end repeat the last."""


AttentionClasses = tuple[SizeClass[AttentionSchedule], ...]
"""By the number of query rows, smallest first; the last is for all others."""


def plan_attention_classes(
    spec: AttentionSpec, machine: Machine, candidate: Candidate = OPEN
) -> AttentionClasses:
    """Plan the classes, smallest first; one, with the candidate's sizes, for a known number of
    rows.

    Raises UnsupportedError when a depth is symbolic or zero.
    """
    rest = plan_attention(spec, machine, candidate)
    if isinstance(spec.rows, int):
        return (SizeClass(None, rest, rest.tasks),)
    small: list[SizeClass[AttentionSchedule]] = []
    for rows in _EXACT_ROWS:
        one = plan_attention(replace(spec, rows=rows), machine)
        small.append(SizeClass(rows, one, one.tasks, exact=True))
    few = plan_attention(spec, machine, OPEN, _ROWS_AT_A_TIME)
    small.append(SizeClass(FEW_ROWS, few, few.tasks))
    least = bounds(spec.rows)[0] or 0
    kept = (one for one in small if one.most is not None and one.most >= least)
    return (*kept, SizeClass(None, rest, rest.tasks))


def attention_loss(
    spec: AttentionSpec,
    classes: AttentionClasses,
    sizes: Mapping[str, int],
    machine: Machine,
) -> float:
    """Return the `Loss` (lower/schedule/template.py): 0 where only batch dims are symbolic, and the
    sizes alone would get the same schedule."""
    if not (isinstance(spec.rows, int) and isinstance(spec.keys, int)):
        return math.inf
    known = replace(spec, batch=tuple(evaluate(size, sizes) for size in spec.batch))
    alone = plan_attention(known, machine)
    shared = classes[-1].schedule
    same = replace(shared, row_blocks=0, tasks=0, work=0) == replace(
        alone, row_blocks=0, tasks=0, work=0
    )
    return 0.0 if same else math.inf


def emit_attention_classes(
    builder: KernelBuilder, spec: AttentionSpec, classes: AttentionClasses
) -> None:
    """Write the kernel's body with a branch for each class, and set `tasks` and `scratch`. The
    builder must be empty but for buffers."""
    builder.kernel.scratch = max(one.schedule.scratch_bytes for one in classes)
    if len(classes) == 1:
        builder.set_tasks(classes[0].schedule.tasks)
        emit_attention(builder, spec, classes[0].schedule)
        return

    def body(schedule: AttentionSchedule, task: Dim, rows: Dim) -> None:
        emit_attention(builder, replace(spec, rows=rows), schedule, task)

    emit_by_size(builder, spec.rows, classes, body)
