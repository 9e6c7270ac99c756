"""How a recurrent layer is cut into tasks and register tiles."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv
from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import Machine
from kernelmill.lower.templates.recurrent.spec import GATES, RecurrentSpec

_SUMS = {32: 24, 16: 12}
"""Sums of a register tile, by the number of registers."""


@dataclass(frozen=True)
class RecurrentSchedule:
    """A task takes `rows` of the batch through all steps. A register tile is these rows by
    `vectors` of each gate. Work is in nanoseconds of one core."""

    lanes: int
    rows: int
    vectors: int
    use_fma: bool
    tasks: Dim
    work: Dim


def plan_recurrent(spec: RecurrentSpec, machine: Machine) -> RecurrentSchedule:
    """Return a schedule with as many rows as there are registers for: all read one weight."""
    gates, lanes = GATES[spec.cell], machine.isa.lanes(F32)
    sums = _SUMS[machine.isa.vector_registers]
    rows = max(1, sums // gates)
    if isinstance(spec.batch, int):
        tasks = max(1, -(-spec.batch // rows))
        rows = max(1, -(-spec.batch // tasks))
    vectors = max(1, min(sums // (gates * rows), spec.size // lanes))
    work = ceildiv(spec.steps * spec.batch * gates * spec.size**2, machine.products(lanes)) + 1
    return RecurrentSchedule(
        lanes, rows, vectors, machine.isa.has_fma, ceildiv(spec.batch, rows), work
    )
