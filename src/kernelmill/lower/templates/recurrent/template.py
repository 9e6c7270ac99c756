"""The recurrent template: LSTM, GRU and simple cells over all steps of time.

A recurrent layer in one direction, in float32; torch's formulas (aten/src/ATen/native/RNN.cpp).

With p = gates[t] + h @ weight, cut into the gates of the cell, each as wide as the state h:

    tanh, relu  h = tanh(p) or max(p, 0)
    lstm        i, f, g, o = p;   c = sigmoid(f) * c + sigmoid(i) * tanh(g)
                h = sigmoid(o) * tanh(c), of which the next step gets h @ narrow, if that is given
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
from kernelmill.lower.elements.emitter import Emitter, Location
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
    """What cells give for a batch after each of `steps` steps, (steps, batch, size); of an LSTM
    followed by the last cell state. With `backward` the last step is the first.

    width   of the state, `size` where it is not projected
    gates   loads from the inputs' part of the gates, (steps, batch, gates * size)
    weight  from the weight: a step along k, the gate, and the first column of a vector
    state   from the first state, (batch, width)
    more    from the first cell state of an LSTM, (batch, size), or a GRU's bias, (size,)
    narrow  from the projection, which counts as one gate
    """

    cell: str
    steps: Dim
    batch: Dim
    size: int
    width: int
    backward: bool
    gates: Load
    weight: LoadWeight
    state: Load
    more: Load | None
    narrow: LoadWeight | None
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
    products = spec.steps * spec.batch * spec.size * spec.width * (gates + bool(spec.narrow))
    return RecurrentSchedule(
        lanes, rows, max(1, sums // (gates * rows)), machine.isa.has_fma,
        ceildiv(spec.batch, rows), ceildiv(products, machine.products(lanes)) + 1,
    )  # fmt: skip


_Sums = dict[tuple[int, int, int], Register]
"""By gate, row and vector."""


def emit_recurrent(
    builder: KernelBuilder, spec: RecurrentSpec, schedule: RecurrentSchedule
) -> None:
    """Write one task, and set the kernel's scratch: the states before and after a step, the cell
    states, and what cells give that is then projected."""
    parts = 3 if spec.narrow is None else 4
    builder.kernel.scratch = parts * schedule.rows * spec.size * F32.bytes
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
        self._copy(0, self.spec.width, self.spec.state)
        if self.spec.cell == "lstm" and self.spec.more is not None:
            self._copy(2, self.spec.size, self.spec.more)

    def _copy(self, part: int, width: int, load: Load) -> None:
        def copy(columns: Sequence[_Columns]) -> None:
            for (i, row), each in product(enumerate(self.rows), columns):
                self._keep(part, i, each, load((row, each.index), each.lane))

        self._for_columns(width, copy)

    def end(self) -> None:
        """Store the last cell states of an LSTM."""
        if self.spec.cell != "lstm":
            return

        def store(columns: Sequence[_Columns]) -> None:
            for (i, row), each in product(enumerate(self.rows), columns):
                place = self.spec.steps, row, each.index
                self.spec.store(place, each.lane, self._kept(2, i, each))

        self._for_columns(self.spec.size, store)

    def step(self, t: Dim) -> None:
        """Compute the states after one step."""
        spec, after = self.spec, 1 - mod(t, 2)
        step = spec.steps - 1 - t if spec.backward else t

        def given(g: int, i: int, each: _Columns) -> Register:
            if spec.cell == "gru" and g == 2 and spec.more is not None:
                return spec.more((each.index,), each.lane)
            return spec.gates((step, self.rows[i], self._of(g, each)), each.lane)

        def compute(columns: Sequence[_Columns]) -> None:
            count = CELL_GATES[spec.cell]
            sums = self._sums(mod(t, 2), spec.width, (count, spec.weight), columns, given)
            for (i, row), (n, each) in product(enumerate(self.rows), enumerate(columns)):
                gates = [sums[g, i, n] for g in range(count)]
                state = self._state(t, (step, row), i, each, gates)
                self._keep(after if spec.narrow is None else 3, i, each, state)
                spec.store((step, row, each.index), each.lane, state)

        self._for_columns(spec.size, compute)
        narrow = spec.narrow
        if narrow is None:
            return

        def project(columns: Sequence[_Columns]) -> None:
            zero = self.b.op("splat", 0.0, dtype=F32, lanes=self.schedule.lanes)
            sums = self._sums(3, spec.size, (1, narrow), columns, lambda *_: zero)
            for (_, i, n), state in sums.items():
                self._keep(after, i, columns[n], state)

        self._for_columns(spec.width, project, CELL_GATES[spec.cell])

    def _sums(
        self, part: Dim, depth: int, weight: tuple[int, LoadWeight], columns: Sequence[_Columns],
        given: Callable[[int, int, _Columns], Register],
    ) -> _Sums:  # fmt: skip
        """Return what is given plus the products of the rows of a part of scratch with a weight of
        some gates, by gate, row and vector."""
        b, (count, load) = self.b, weight
        tile = [*product(range(count), range(len(self.rows)), range(len(columns)))]
        carry = [(VType(F32, self.schedule.lanes), given(g, i, columns[n])) for g, i, n in tile]
        with b.loop(0, depth, prefix="k", carry=carry) as along:
            weights = {
                (g, n): load(along.index, g, each.first, each.lane)
                for g, (n, each) in product(range(count), enumerate(columns))
            }
            states = [
                b.load(SCRATCH, self._place(part, i, along.index), F32)
                for i in range(len(self.rows))
            ]
            along.carry(*(
                self._tile.multiply_add(b, states[i], weights[g, n], known)
                for (g, i, n), known in zip(tile, along.carried, strict=True)
            ))  # fmt: skip
        return dict(zip(tile, along.results, strict=True))

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
        """Return an element of scratch: parts 0 and 1 are states, 2 cell states, 3 what cells give
        before it is projected."""
        return (part * self.schedule.rows + row) * self.spec.size + column

    def _keep(self, part: Dim, row: int, columns: _Columns, value: Register) -> None:
        self.b.store(SCRATCH, self._place(part, row, columns.first), value, columns.lane.mask)

    def _kept(self, part: Dim, row: int, columns: _Columns) -> Register:
        place, lane = self._place(part, row, columns.first), columns.lane
        return self.b.load(SCRATCH, place, F32, lane.count, lane.mask)

    def _for_columns(
        self, width: int, body: Callable[[Sequence[_Columns]], None], times: int = 1
    ) -> None:
        """Run `body` for tiles of `times` the schedule's vectors, for single vectors that are left,
        and for a masked rest."""
        b, lanes = self.b, self.schedule.lanes
        tile = lanes * max(1, min(self.schedule.vectors * times, width // lanes))
        lane = Lane(b.fresh_symbol("l", 0, lanes - 1), lanes)
        if width >= tile:
            with b.loop(0, width // tile, prefix="v") as loop:
                body([_Columns(loop.index * tile + n, lane) for n in range(0, tile, lanes)])
        for first in range(width // tile * tile, width // lanes * lanes, lanes):
            body([_Columns(first, lane)])
        rest = width % lanes
        if rest:
            mask = b.op("lane_mask", b.index(rest), lanes=lanes)
            lane = Lane(b.fresh_symbol("l", 0, rest - 1), lanes, mask)
            body([_Columns(width - rest, lane)])


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
    """A recurrent layer, whose weights are packed as they are read where they are constant."""

    @property
    def _gates(self) -> int:
        return CELL_GATES[str(self.seed.attrs["cell"])]

    def pack(self, packing: None) -> PackedWeights:
        """Store panels (panel, k, gate, lane) of the weights (k, gates * columns)."""
        _, weight, _, *more = self.seed.operands
        narrow = self._pack(more[1], 1) if len(more) > 1 else None
        return PackedWeights(a=narrow, b=self._pack(weight, self._gates))

    def _pack(self, weight: Value, gates: int) -> Location | None:
        (depth, wide), lanes = weight.shape, self.context.machine.isa.lanes(F32)
        assert isinstance(wide, int)
        builder, panels = GraphBuilder("panels", self.seed.origin), part_count(wide // gates, lanes)
        view = builder.emit("reshape", weight, shape=(depth, gates, wide // gates))
        view = padded(builder, view, (depth, gates, panels * lanes))
        view = builder.emit("reshape", view, shape=(depth, gates, panels, lanes))
        return self.context.pack(builder.emit("permute", view, dims=(2, 0, 1, 3)))

    def spec(self, emitter: Emitter, packed: PackedWeights) -> RecurrentSpec:
        """Return the spec of this layer."""
        gates, weight, state, *more = self.seed.operands
        (width, wide), target = weight.shape, self.context.targets[self.seed.result]
        assert isinstance(width, int) and isinstance(wide, int)

        def load(value: Value) -> Load:
            return lambda index, lane: emitter.read(value, index, lane, F32)

        def load_weight(value: Value, count: int, location: Location | None) -> LoadWeight:
            depth, columns = value.shape

            def read(k: Dim, gate: int, first: Dim, lane: Lane) -> Register:
                if location is None:
                    index = k, first + gate * (columns // count) + lane.index
                    return emitter.read(value, index, lane, F32)
                place = (first * depth + k * lane.count) * count + gate * lane.count
                return emitter.builder.load(emitter.param(location, "in"), place, F32, lane.count)

            return read

        return RecurrentSpec(
            str(self.seed.attrs["cell"]), gates.shape[0], state.shape[0], wide // self._gates,
            width, bool(self.seed.attrs["backward"]), load(gates),
            load_weight(weight, self._gates, packed.b), load(state),
            load(more[0]) if more else None,
            load_weight(more[1], 1, packed.a) if len(more) > 1 else None,
            lambda index, lane, value: emitter.write(target, index, lane, value),
        )  # fmt: skip


RECURRENT = NodeTemplate(
    "recurrent", frozenset({"recurrent"}), RecurrentBinding, plan_recurrent, emit_recurrent
)
"""The states after each step, rows of the batch by themselves."""
