"""The scatter template: writes to computed places of a buffer that already holds values.

    for i in the index space, row-major:
        for w in the window:
            target[indices(i, w) at `axes`, w at the other axes]  op=  update(i, w)

Positions of the window are independent of one another, so tasks and vectors share them out. The
index space is walked in order within a task: an element that is addressed more than once gets its
updates in the order of a sequential loop, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum, product
from kernelmill.core.dtype import BOOL, DType
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Combine, Node, Value
from kernelmill.graph.ops import COMBINED_BY
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import Dims, narrow_lanes
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.context import lane_vectors, task_index
from kernelmill.lower.schedule.template import NodeTemplate, bind_node

LoadIndices = Callable[[KernelBuilder, Dims, Dims], Sequence[Register]]
"""`indices(builder, i, w)`: a scalar i64 for each of the spec's axes, negative ones counting from
the end. `w` is () when the indices are the same for the whole window."""

LoadUpdate = Callable[[KernelBuilder, Dims, Dims, Lane | None], Register]
"""`update(builder, i, w, lane)`: one element of what is written, or the vector along the lane's
symbol in the last position of `w`. In the compute type; a scalar may stand for equal lanes."""


@dataclass(frozen=True)
class ScatterTarget:
    """The buffer that is written to: a declared "inout" parameter. Strides in elements."""

    buffer: str
    dtype: DType
    shape: Dims
    strides: Dims
    offset: Dim = 0


@dataclass(frozen=True)
class ScatterSpec:
    """The computation of a scatter. The kernel must declare the status buffer.

    axes     of the target that indices address, ascending.
    space    shape of the index space.
    window   sizes of the target's other axes, in order; each at most the target's.
    shared   whether the indices are the same for the whole window.
    mode     how an element and its update are combined.
    check    the status code that reports an index out of range; such updates are left out.
    """

    target: ScatterTarget
    axes: tuple[int, ...]
    space: Dims
    window: Dims
    indices: LoadIndices
    update: LoadUpdate
    mode: Combine
    shared: bool
    check: int = 1


_ENOUGH_TASKS = 8
_LEAST_VECTORS = 4


@dataclass(frozen=True)
class ScatterSchedule:
    """The schedule of a scatter: tasks are the window without its last axis, times blocks of that.

    `inside` tells that the loop over a block stands inside those over the index space; with more
    than one lane it always does. Work is in nanoseconds of one core.
    """

    lanes: int
    block: Dim
    inside: bool
    grid: Dims
    work: Dim

    @property
    def tasks(self) -> Dim:
        """The number of tasks."""
        return product(self.grid)


def plan_scatter(spec: ScatterSpec, machine: Machine) -> ScatterSchedule:
    """Plan vectors along the window's last axis where memory and indices allow it."""
    updates = product(spec.space) * product(spec.window)
    if not spec.window:
        return ScatterSchedule(1, 1, True, (), updates * 2 + 1)
    last = len(spec.target.shape) - 1
    inside = last not in spec.axes
    vector = inside and spec.shared and spec.target.strides[last] == 1
    lanes = machine.isa.vector_bits // min(32, spec.target.dtype.compute.bits) if vector else 1
    width = spec.window[-1]
    lanes = narrow_lanes(lanes, width)
    block = _block(spec.window, lanes)
    grid = (*spec.window[:-1], ceildiv(width, block) if width != 0 else 0)
    return ScatterSchedule(lanes, block, inside, grid, ceildiv(updates * 2, lanes) + 1)


def _block(window: Dims, lanes: int) -> Dim:
    """Return the positions of the last axis for one task: all, unless that leaves too few tasks."""
    outer, width = product(window[:-1]), window[-1]
    if not isinstance(outer, int) or not isinstance(width, int) or outer >= _ENOUGH_TASKS:
        return width
    least = lanes * _LEAST_VECTORS
    wanted = -(-width * max(outer, 1) // _ENOUGH_TASKS)
    return min(max(width, 1), -(-max(wanted, least) // lanes) * lanes)


def emit_scatter(builder: KernelBuilder, spec: ScatterSpec, schedule: ScatterSchedule) -> None:
    """Append the body of one task. The kernel must have the schedule's `tasks`."""
    writer = _ScatterWriter(builder, spec)
    if not spec.window:
        with writer.walk(spec.space) as i:
            writer.write(i, (), None)
        return
    *outer, block = task_index(builder, schedule.grid)
    start = block * schedule.block
    stop = minimum(start + schedule.block, spec.window[-1])
    if not schedule.inside:
        with builder.loop(start, stop, prefix="w") as loop, writer.walk(spec.space) as i:
            writer.write(i, (*outer, loop.index), None)
        return
    with writer.walk(spec.space) as i:
        if spec.shared:
            with writer.places(i, ()) as places:
                writer.write_block(i, tuple(outer), start, stop, schedule.lanes, places)
        else:
            with builder.loop(start, stop, prefix="w") as loop:
                writer.write(i, (*outer, loop.index), None)


class _ScatterWriter:
    def __init__(self, builder: KernelBuilder, spec: ScatterSpec) -> None:
        self.b, self.spec = builder, spec

    @contextmanager
    def walk(self, sizes: Dims) -> Generator[Dims]:
        """Loop over an index space, the last axis innermost."""
        if not sizes:
            yield ()
            return
        with self.b.loop(0, sizes[0], prefix="i") as loop, self.walk(sizes[1:]) as rest:
            yield (loop.index, *rest)

    @contextmanager
    def places(self, i: Dims, w: Dims) -> Generator[Dims]:
        """Yield the positions that the indices address; code inside runs only where all exist."""
        b, spec = self.b, self.spec
        wrapped: list[tuple[Register, Dim]] = []
        valid: Register | None = None
        for axis, index in zip(spec.axes, spec.indices(b, i, w), strict=True):
            size = spec.target.shape[axis]
            extent = b.index(size)
            index = b.op("select", b.op("lt", index, 0), b.op("add", index, extent), index)
            exists = b.op("and", b.op("ge", index, 0), b.op("lt", index, extent))
            valid = exists if valid is None else b.op("and", valid, exists)
            wrapped.append((index, size))
        assert valid is not None
        with b.when(b.op("check", valid, code=spec.check)):
            yield tuple(b.let(index, 0, size - 1) for index, size in wrapped)

    def write(self, i: Dims, w: Dims, lane: Lane | None) -> None:
        with self.places(i, () if self.spec.shared else w) as places:
            self._update(i, w, lane, places)

    def write_block(
        self, i: Dims, outer: Dims, start: Dim, stop: Dim, lanes: int, places: Dims
    ) -> None:
        """Write positions start..stop-1 of the window's last axis, for one index."""
        b, width = self.b, self.spec.window[-1]
        whole = isinstance(width, int) and width % lanes == 0
        with lane_vectors(b, start, stop, lanes, whole, "w") as (first, lane):
            at = first + (0 if lane is None else lane.index)
            self._update(i, (*outer, at), lane, places)

    def _update(self, i: Dims, w: Dims, lane: Lane | None, places: Dims) -> None:
        b, target = self.b, self.spec.target
        address = self._address(w if lane is None else (*w[:-1], w[-1] - lane.index), places)
        value = self.spec.update(b, i, w, lane)
        lanes, mask = (1, None) if lane is None else (lane.count, lane.mask)
        if self.spec.mode is not Combine.SET:
            stored = b.load(target.buffer, address, target.dtype, lanes, mask)
            old = b.cast(stored, target.dtype.compute)
            by = COMBINED_BY[self.spec.mode]
            op = by.kernel_op_bool if target.dtype == BOOL else by.kernel_op
            assert op is not None
            # Of two zeros `max` and `min` give the second: that which is there, as ATen does.
            extreme = self.spec.mode in (Combine.MAX, Combine.MIN)
            value = b.op(op, value, old) if extreme else b.op(op, old, value)
        elif value.type.lanes < lanes:
            value = b.op("splat", value, dtype=value.type.dtype, lanes=lanes)
        b.store(target.buffer, address, b.cast(value, target.dtype), mask)

    def _address(self, w: Dims, places: Dims) -> Dim:
        target = self.spec.target
        addressed, window = iter(places), iter(w)
        address = target.offset
        for axis, stride in enumerate(target.strides):
            position = next(addressed) if axis in self.spec.axes else next(window)
            address = address + position * stride
        return address


def _scatter_spec(emitter: Emitter, node: Node, target: Location) -> ScatterSpec:
    made = _scatter if node.op == "scatter" else _put
    return made(emitter, node, target)


def _scatter(emitter: Emitter, node: Node, target: Location) -> ScatterSpec:
    """Element i of the source goes to i with position `dim` looked up in the index tensor."""
    _, indices, source = node.operands
    dim, mode = node.attrs["dim"], Combine(str(node.attrs["mode"]))
    assert isinstance(dim, int)

    def full(i: Index, w: Index) -> Index:
        return (*w[:dim], *i, *w[dim:])

    return ScatterSpec(
        _target(emitter, node, target), (dim,), (indices.shape[dim],),
        (*indices.shape[:dim], *indices.shape[dim + 1 :]),
        lambda _, i, w: [_position(emitter, node, indices, full(i, w))],
        lambda _, i, w, lane: emitter.read(source, full(i, w), lane),
        mode, shared=False,
    )  # fmt: skip


def _put(emitter: Emitter, node: Node, target: Location) -> ScatterSpec:
    """The values' dims are the kept dims of x with the indices' shape put in at `at`."""
    x, values, *indices = node.operands
    dims, at, mode = node.attrs["dims"], node.attrs["at"], Combine(str(node.attrs["mode"]))
    assert isinstance(dims, tuple) and isinstance(at, int)
    window = tuple(size for d, size in enumerate(x.shape) if d not in dims)
    return ScatterSpec(
        _target(emitter, node, target), tuple(d for d in dims if isinstance(d, int)),
        indices[0].shape, window,
        lambda _, i, w: [_position(emitter, node, operand, i) for operand in indices],
        lambda _, i, w, lane: emitter.read(values, (*w[:at], *i, *w[at:]), lane),
        mode, shared=True,
    )  # fmt: skip


def _target(emitter: Emitter, node: Node, location: Location) -> ScatterTarget:
    emitter.declare_status()
    emitter.param(location, "in")
    name = emitter.param(location, "out")
    shape: Sequence[Dim] = node.result.shape
    return ScatterTarget(name, location.dtype, tuple(shape), location.strides, location.offset)


def _position(emitter: Emitter, node: Node, value: Value, index: Index) -> Register:
    """An element of an index tensor; the template wraps negative ones and checks them."""
    b = emitter.builder
    register = emitter.read(value, index, None)
    if node.attrs.get("unsigned"):
        # No negative one is in range, and so is no such large one.
        register = b.op("select", b.op("lt", register, 0), 2**63 - 1, register)
    return register


SCATTER = NodeTemplate(
    "scatter",
    frozenset({"scatter", "index_put"}),
    bind_node(_scatter_spec),
    plan_scatter,
    emit_scatter,
)
"""Writes to computed places, in the order of a sequential loop."""
