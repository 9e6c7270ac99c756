"""Loss of a contraction whose kernel was made for a symbolic number of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelmill.core.dim import evaluate
from kernelmill.core.target.machine import Machine
from kernelmill.lower.templates.matmul.classes import RowClass
from kernelmill.lower.templates.matmul.schedule import plan_contraction
from kernelmill.lower.templates.matmul.spec import Contraction


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
