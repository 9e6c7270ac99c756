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
from kernelmill.core.dim import Dim
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
"""Gates of each kind of cell."""

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
