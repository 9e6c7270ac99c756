"""The schedules of a contraction, and which of them it gets."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.machine import Machine
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.candidates import (
    ContractionCandidate,
    first_of,
    register_tiles,
    task_sizes,
)
from kernelmill.lower.templates.matmul.heuristics import plan_blocked
from kernelmill.lower.templates.matmul.inner_product import InnerProduct, plan_inner_product
from kernelmill.lower.templates.matmul.pieced import Pieced
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tiled import Tiled
from kernelmill.lower.templates.matmul.tiled_heuristics import plan_tiled

Schedule = Blocked | InnerProduct | Tiled | Pieced

_OPEN = ContractionCandidate()


def plan_contraction(
    spec: Contraction, machine: Machine, candidate: ContractionCandidate = _OPEN
) -> Schedule:
    """The schedule for this contraction on this processor, with what the candidate settles.
    Depends on nothing else."""
    tiled = plan_tiled(spec, machine, candidate)
    if tiled is not None and spec.exact is not None:
        return Pieced.of(tiled, spec.exact)
    return (
        tiled
        or plan_inner_product(spec, machine, candidate)
        or plan_blocked(spec, machine, candidate)
    )


def contraction_candidates(spec: Contraction, schedule: Schedule) -> Sequence[ContractionCandidate]:
    """What to try in place of the cost model's schedule, the likelier first; none where a size is
    symbolic."""
    sizes = (*spec.batch, spec.m, spec.n, *spec.k)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return ()
    match schedule:
        case Blocked():
            return first_of(register_tiles(spec, schedule), task_sizes(spec, schedule))
        case InnerProduct() | Tiled() | Pieced():
            return first_of(task_sizes(spec, schedule))
