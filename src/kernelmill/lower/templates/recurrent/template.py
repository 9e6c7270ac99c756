"""The recurrent template: LSTM, GRU and simple cells over all steps of time.

A recurrent layer in one direction, in float32; torch's formulas (aten/src/ATen/native/RNN.cpp).

With p = gates[t] + h @ weight, cut into the gates of the cell, each as wide as the state h:

    tanh, relu  h = tanh(p) or max(p, 0)
    lstm        i, f, g, o = p;   c = sigmoid(f) * c + sigmoid(i) * tanh(g)
                h = sigmoid(o) * tanh(c)
    gru         r, z, n = gates[t];   u, v, w = h @ weight
                n = tanh(n + sigmoid(r + u) * (w + bias));   h = (h - n) * sigmoid(z + v) + n
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum, mod
from kernelmill.core.dtype import F32
from kernelmill.core.target.dot_units import MULTIPLY_ADD
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import CELL_GATES, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, VType
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, part_count
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.microkernel import Tile
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.template import Binding, NodeTemplate
from kernelmill.lower.weights.panel_views import padded

Load = Callable[[Dims, Lane], Register]
LoadWeight = Callable[[Dim, int, Dim, Lane], Register]
Store = Callable[[Dims, Lane, Register], None]


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


_Sums = dict[tuple[int, int, int], Register]
"""By gate, row and vector."""


def emit_recurrent(
    builder: KernelBuilder, spec: RecurrentSpec, schedule: RecurrentSchedule
) -> None:
    """Write one task, and set the kernel's scratch: the states before and after a step, and the
    cell states."""
    builder.kernel.scratch = 3 * schedule.rows * spec.size * F32.bytes
    task = _RecurrentTask(builder, spec, schedule)
    task.begin()
    with builder.loop(0, spec.steps, prefix="t") as time:
        task.step(time.index)
    task.end()


@dataclass(frozen=True)
class _RecurrentTask:
    b: KernelBuilder
    spec: RecurrentSpec
    schedule: RecurrentSchedule

    @property
    def _tile(self) -> Tile:
        one = self.schedule
        return Tile(one.rows, one.vectors, one.lanes, F32, one.use_fma, MULTIPLY_ADD)

    @cached_property
    def rows(self) -> list[Dim]:
        """Rows of the batch; those past the end are the last one again."""
        first = self.b.task * self.schedule.rows
        return [minimum(first + i, self.spec.batch - 1) for i in range(self.schedule.rows)]

    def begin(self) -> None:
        """Copy the first states to scratch."""
        cells = self.spec.more if self.spec.cell == "lstm" else None

        def copy(columns: Sequence[_Columns]) -> None:
            for i, row in enumerate(self.rows):
                for each in columns:
                    self._keep(0, i, each, self.spec.state((row, each.index), each.lane))
                    if cells is not None:
                        self._keep(2, i, each, cells((row, each.index), each.lane))

        self._for_columns(copy)

    def end(self) -> None:
        """Store the last cell states of an LSTM."""
        if self.spec.cell != "lstm":
            return

        def store(columns: Sequence[_Columns]) -> None:
            for i, row in enumerate(self.rows):
                for each in columns:
                    place = self.spec.steps, row, each.index
                    self.spec.store(place, each.lane, self._kept(2, i, each))

        self._for_columns(store)

    def step(self, t: Dim) -> None:
        """Compute the states after one step."""
        step = self.spec.steps - 1 - t if self.spec.backward else t

        def compute(columns: Sequence[_Columns]) -> None:
            sums = self._sums(t, step, columns)
            for i, row in enumerate(self.rows):
                for n, each in enumerate(columns):
                    gates = [sums[g, i, n] for g in range(CELL_GATES[self.spec.cell])]
                    state = self._state(t, (step, row), i, each, gates)
                    self._keep(1 - mod(t, 2), i, each, state)
                    self.spec.store((step, row, each.index), each.lane, state)

        self._for_columns(compute)

    def _sums(self, t: Dim, step: Dim, columns: Sequence[_Columns]) -> _Sums:
        """Return the products of the rows' states with the weight, by gate, row and vector, added
        to the inputs' part where the cell does nothing else with it first."""
        spec, b = self.spec, self.b
        gates = range(CELL_GATES[spec.cell])
        tile = [*product(gates, range(len(self.rows)), range(len(columns)))]
        initial = [
            spec.more((columns[n].index,), columns[n].lane)
            if spec.cell == "gru" and g == 2 and spec.more is not None
            else spec.gates((step, self.rows[i], self._of(g, columns[n])), columns[n].lane)
            for g, i, n in tile
        ]
        carry = [(VType(F32, self.schedule.lanes), value) for value in initial]
        with b.loop(0, spec.size, prefix="k", carry=carry) as depth:
            weights = {
                (g, n): spec.weight(depth.index, g, each.first, each.lane)
                for g in gates
                for n, each in enumerate(columns)
            }
            states = [
                b.load(SCRATCH, self._place(mod(t, 2), i, depth.index), F32)
                for i in range(len(self.rows))
            ]
            depth.carry(*(
                self._tile.multiply_add(b, states[i], weights[g, n], known)
                for (g, i, n), known in zip(tile, depth.carried, strict=True)
            ))  # fmt: skip
        return dict(zip(tile, depth.results, strict=True))

    def _state(
        self, t: Dim, place: tuple[Dim, Dim], i: int, columns: _Columns, gates: Sequence[Register]
    ) -> Register:
        """Return the new state of row `i`, by the formulas above."""
        op, cell = self.b.op, self.spec.cell
        if cell == "lstm":
            into, keep, new, out = gates
            kept = op("mul", op("sigmoid", keep), self._kept(2, i, columns))
            cells = op("add", kept, op("mul", op("sigmoid", into), op("tanh", new)))
            self._keep(2, i, columns, cells)
            return op("mul", op("sigmoid", out), op("tanh", cells))
        if cell == "gru":
            reset, update, new = gates
            given = self.spec.gates((*place, self._of(2, columns)), columns.lane)
            new = op("tanh", op("add", given, op("mul", op("sigmoid", reset), new)))
            before = self._kept(mod(t, 2), i, columns)
            return op("add", op("mul", op("sub", before, new), op("sigmoid", update)), new)
        (total,) = gates
        return op("tanh", total) if cell == "tanh" else op("max", total, 0.0)

    # ---- places ---------------------------------------------------------------------------------

    def _of(self, gate: int, columns: _Columns) -> Dim:
        return columns.index + gate * self.spec.size

    def _place(self, part: Dim, row: int, column: Dim) -> Dim:
        """Return an element of scratch: parts 0 and 1 are states, 2 cell states."""
        return (part * self.schedule.rows + row) * self.spec.size + column

    def _keep(self, part: Dim, row: int, columns: _Columns, value: Register) -> None:
        self.b.store(SCRATCH, self._place(part, row, columns.first), value, columns.lane.mask)

    def _kept(self, part: Dim, row: int, columns: _Columns) -> Register:
        place, lane = self._place(part, row, columns.first), columns.lane
        return self.b.load(SCRATCH, place, F32, lane.count, lane.mask)

    def _for_columns(self, body: Callable[[Sequence[_Columns]], None]) -> None:
        """Run `body` for tiles of vectors, for single vectors that are left, and for a masked
        rest."""
        b, lanes, size = self.b, self.schedule.lanes, self.spec.size
        tile, lane = lanes * self.schedule.vectors, Lane(b.fresh_symbol("l", 0, lanes - 1), lanes)
        if size >= tile:
            with b.loop(0, size // tile, prefix="v") as loop:
                body([_Columns(loop.index * tile + n, lane) for n in range(0, tile, lanes)])
        for first in range(size // tile * tile, size // lanes * lanes, lanes):
            body([_Columns(first, lane)])
        rest = size % lanes
        if rest:
            mask = b.op("lane_mask", b.index(rest), lanes=lanes)
            lane = Lane(b.fresh_symbol("l", 0, rest - 1), lanes, mask)
            body([_Columns(size - rest, lane)])


@dataclass(frozen=True)
class _Columns:
    """A vector of columns from `first` on."""

    first: Dim
    lane: Lane

    @property
    def index(self) -> Dim:
        """The column of each lane."""
        return self.first + self.lane.index


class RecurrentBinding(Binding[RecurrentSpec]):
    """A recurrent layer, whose weight is packed as it is read where it is constant."""

    def pack(self, packing: None) -> PackedWeights:
        """Store panels (panel, k, gate, lane) of the weight (k, gates * size)."""
        weight, lanes = self.seed.operands[1], self.context.machine.isa.lanes(F32)
        size, wide = weight.shape
        assert isinstance(size, int) and isinstance(wide, int)
        builder, panels = GraphBuilder("panels", self.seed.origin), part_count(size, lanes)
        view = builder.emit("reshape", weight, shape=(size, wide // size, size))
        view = padded(builder, view, (size, wide // size, panels * lanes))
        view = builder.emit("reshape", view, shape=(size, wide // size, panels, lanes))
        view = builder.emit("permute", view, dims=(2, 0, 1, 3))
        location = self.context.pack(view)
        return PackedWeights() if location is None else PackedWeights(b=location, packing=view)

    def spec(self, emitter: Emitter, packed: PackedWeights) -> RecurrentSpec:
        """Return the spec of this layer."""
        gates, weight, state, *more = self.seed.operands
        size, target = weight.shape[0], self.context.targets[self.seed.result]
        assert isinstance(size, int)

        def load(value: Value) -> Load:
            return lambda index, lane: emitter.read(value, index, lane, F32)

        def load_weight(k: Dim, gate: int, first: Dim, lane: Lane) -> Register:
            if packed.b is None:
                index = k, first + gate * size + lane.index
                return emitter.read(weight, index, lane, F32)
            block = emitter.param(packed.b, "in")
            place = (first * size + k * lane.count) * (weight.shape[1] // size)
            place = place + gate * lane.count
            return emitter.builder.load(block, place, F32, lane.count)

        return RecurrentSpec(
            str(self.seed.attrs["cell"]), gates.shape[0], state.shape[0], size,
            bool(self.seed.attrs["backward"]), load(gates), load_weight, load(state),
            load(more[0]) if more else None,
            lambda index, lane, value: emitter.write(target, index, lane, value),
        )  # fmt: skip


RECURRENT = NodeTemplate(
    "recurrent", frozenset({"recurrent"}), RecurrentBinding, plan_recurrent, emit_recurrent
)
"""The states after each step, rows of the batch by themselves."""
