"""A recurrent layer in one direction, in float32; torch's formulas (aten/src/ATen/native/RNN.cpp).

With p = gates[t] + h @ weight, cut into the gates of the cell, each as wide as the state h:

    tanh, relu  h = tanh(p) or max(p, 0)
    lstm        i, f, g, o = p;   c = sigmoid(f) * c + sigmoid(i) * tanh(g)
                h = sigmoid(o) * tanh(c)
    gru         r, z, n = gates[t];   u, v, w = h @ weight
                n = tanh(n + sigmoid(r + u) * (w + bias));   h = (h - n) * sigmoid(z + v) + n
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv
from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import Machine
from kernelmill.graph.definition import CELL_GATES
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims

Load = Callable[[Dims, Lane], Value]
LoadWeight = Callable[[Dim, int, Dim, Lane], Value]
Store = Callable[[Dims, Lane, Value], None]


@dataclass(frozen=True)
class RecurrentSpec:
    """The states of a batch after each of `steps` steps, (steps, batch, size); of an LSTM followed
    by the last cell state. With `backward` the last step is the first.

    gates   loads from the inputs' part of the gates, (steps, batch, gates * size)
    weight  from the weight: a step along k, the gate, and the first column of a vector
    state   from the first state, (batch, size)
    more    from the first cell state of an LSTM, (batch, size), or a GRU's bias, (size,)
    """

    cell: str
    steps: Dim
    batch: Dim
    size: int
    backward: bool
    gates: Load
    weight: LoadWeight
    state: Load
    more: Load | None
    store: Store


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
    gates, lanes = CELL_GATES[spec.cell], machine.isa.lanes(F32)
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
