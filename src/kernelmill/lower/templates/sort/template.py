"""The sort template: sort and topk as positions, in eager's order of equal elements.

A stable sort has only one order of equal elements. Otherwise eager's order is that of the C++
standard library of torch (`introsort.py`): of its `sort`, and for topk of `nth_element` or
`partial_sort`, which ATen's SortingKernel.cpp and TopKImpl.h call.

Elements are compared by integer keys: floats by their bits, so that zeros are equal and NaN, all
equal too, are above everything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, ceildiv, minimum, mod, product
from kernelmill.core.dtype import F64, I32, I64, DType
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims, narrow_lanes, size_hint
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.emit.context import lane_vectors
from kernelmill.lower.schedule.template import NodeTemplate, bind_node
from kernelmill.lower.templates.sort.introsort import STACK_WORDS, Item, Items, Sorter, ordered_bits

LoadElement = Callable[[KernelBuilder, Dims, Lane | None], Value]
"""`load(builder, index, lane)`: one element, or the vector along the lane's symbol at the sorted
axis. In the compute type (f32 for half types)."""

StorePosition = Callable[[KernelBuilder, Dims, Value], None]
"""`store(builder, index, position)`: one element of the result, i64."""

RADIX_SORTED = 32768
"""Least number of integers in a single ascending row that torch sorts by a stable method (ATen's
`can_use_radix_sort`, with its grain size)."""


@dataclass(frozen=True)
class Top:
    """The first `count` positions only; without `sorted`, in the order in which they are found."""

    count: Dim
    sorted: bool


@dataclass(frozen=True)
class SortSpec:
    """result[..., i, ...] is where along `axis` the element is that comes i-th.

    Any size may be symbolic or zero. With `stable` equal elements keep their order; with an integer
    there, in rows of so many elements and more.
    """

    shape: Dims
    axis: int
    dtype: DType
    descending: bool
    stable: bool | int
    top: Top | None
    load: LoadElement
    store: StorePosition

    @property
    def key(self) -> DType:
        """Dtype that elements are compared by."""
        return I64 if self.dtype in (F64, I64) else I32

    @property
    def size(self) -> Dim:
        """Elements of a row."""
        return self.shape[self.axis]

    @property
    def length(self) -> Dim:
        """Positions that a row gives."""
        return self.size if self.top is None else self.top.count


_TASK_ELEMENTS = 2048
PARTIAL = 64
"""Multiple of k from which on topk keeps the k elements in a heap."""


@dataclass(frozen=True)
class SortSchedule:
    """Tasks take `rows` rows each; `lanes` elements become keys at a time. `scratch` is in bytes,
    work in nanoseconds of one core."""

    rows: int
    lanes: int
    tasks: Dim
    scratch: Dim
    work: Dim


def plan_sort(spec: SortSpec, machine: Machine) -> SortSchedule:
    """Plan tasks of independent rows; short ones share a task."""
    total = product(size for axis, size in enumerate(spec.shape) if axis != spec.axis)
    rows = max(1, _TASK_ELEMENTS // size_hint(spec.size))
    lanes = narrow_lanes(machine.isa.vector_bits // spec.key.bits, spec.size)
    held = spec.length if streams(spec) is True else spec.size
    words = STACK_WORDS + ceildiv(held * spec.key.bytes, 8) + held
    rounds = 2 if spec.top is not None else size_hint(spec.size).bit_length() + 1
    work = total * spec.size * 2 * rounds + 1
    return SortSchedule(rows, lanes, ceildiv(total, rows), words * 8, work)


def streams(spec: SortSpec) -> bool | None:
    """Return whether the best are kept in a heap as the row is read; None for unknown sizes."""
    if spec.top is None:
        return False
    left = spec.size - spec.top.count * PARTIAL
    return left >= 0 if isinstance(left, int) else None


def emit_sort(builder: KernelBuilder, spec: SortSpec, schedule: SortSchedule) -> None:
    """Write the kernel's body, and set its `tasks` and `scratch`."""
    builder.kernel.scratch = schedule.scratch
    others = [size for axis, size in enumerate(spec.shape) if axis != spec.axis]
    total = product(others)
    start = builder.task * schedule.rows
    stop = minimum(start + schedule.rows, total)
    with builder.loop(start, stop, prefix="r", high=total - 1) as loop:
        # A grid without rows still needs an index for the code that never runs.
        place = unravel(loop.index, [1 if size == 0 else size for size in others])
        place = tuple(
            at if isinstance(at, int) else builder.let(builder.index(at), 0, size - 1)
            for at, size in zip(place, others, strict=True)
        )
        _Row(builder, spec, schedule, place).emit()


class _Row:
    """A row, whose position along other axes is `place`."""

    def __init__(
        self, builder: KernelBuilder, spec: SortSpec, schedule: SortSchedule, place: Dims
    ) -> None:
        self.b, self.spec, self.place = builder, spec, place
        self.lanes = schedule.lanes
        held = spec.length if streams(spec) is True else spec.size
        positions = STACK_WORDS + ceildiv(held * spec.key.bytes, 8)
        ties: bool | Value = spec.stable is True
        if spec.stable is not True and spec.stable is not False:
            ties = builder.op("ge", builder.index(spec.size), spec.stable)
        keys = STACK_WORDS * 8 // spec.key.bytes
        self.items = Items(builder, spec.key, keys, positions, held, ties)
        self.sorter = Sorter(self.items)

    def emit(self) -> None:
        spec, b = self.spec, self.b
        if spec.top is None:
            self._fill(spec.size)
            self.sorter.sort(spec.size)
        else:
            streaming = streams(spec)
            if streaming is None:
                longest = b.index(spec.size - spec.top.count * PARTIAL)
                with b.when(b.op("ge", longest, 0)) as branch:
                    self._partial_sort(spec.top)
                with b.otherwise(branch):
                    self._select(spec.top)
            elif streaming:
                self._partial_sort(spec.top)
            else:
                self._select(spec.top)
        with b.loop(0, spec.length, prefix="j") as loop:
            spec.store(b, self._index(loop.index), self.items.get(loop.index).position)

    def _index(self, along: Dim) -> Dims:
        axis = self.spec.axis
        return (*self.place[:axis], along, *self.place[axis:])

    def _partial_sort(self, top: Top) -> None:
        """Keep the first elements as a heap, whose worst is replaced by better ones that follow."""
        if top.count == 0:
            return
        b = self.b
        with b.when(b.op("gt", b.index(top.count), 0)):
            self._fill(top.count)
            self.sorter.make_heap(0, top.count)
            with self._vectors(top.count, self.spec.size) as (start, keys, mask):
                worst = self.items.get(0)
                better = b.op("lt", keys, worst.key)
                if mask is not None:
                    better = b.op("and", better, mask)
                with b.when(b.op("reduce_or", better) if self.lanes > 1 else better):
                    self._replace(start, top)
            self.sorter.sort_heap(0, top.count)

    def _replace(self, start: Dim, top: Top) -> None:
        b = self.b
        stop = minimum(start + self.lanes, self.spec.size)
        with b.loop(start, stop, prefix="e", high=self.spec.size - 1) as loop:
            item = Item(self._key(loop.index, None), b.index(loop.index))
            with b.when(self.items.less(item, self.items.get(0))):
                self.sorter.adjust_heap(0, b.index(0), b.index(top.count), item)

    def _select(self, top: Top) -> None:
        if top.count == 0:
            return
        b = self.b
        with b.when(b.op("gt", b.index(top.count), 0)):
            self._fill(self.spec.size)
            self.sorter.select(top.count - 1, self.spec.size)
            if top.sorted:
                self.sorter.sort(top.count - 1)

    # ---- keys -----------------------------------------------------------------------------------

    def _fill(self, count: Dim) -> None:
        b = self.b
        with self._vectors(0, count) as (start, keys, mask):
            number = b.op("iota", dtype=I64, lanes=self.lanes)
            number = b.op("add", number, b.index(start))
            self.items.set_vector(start, keys, number, mask)

    @contextmanager
    def _vectors(self, start: Dim, stop: Dim) -> Generator[tuple[Dim, Value, Value | None]]:
        """Loop over elements, `lanes` at a time: yield the first one, their keys and a mask."""
        b, lanes = self.b, self.lanes
        whole = mod(stop - start, lanes) == 0
        with lane_vectors(b, start, stop, lanes, whole, "v") as (first, lane):
            at = first + (0 if lane is None else lane.index)
            yield first, self._key(at, lane), lane and lane.mask

    def _key(self, along: Dim, lane: Lane | None) -> Value:
        b, spec = self.b, self.spec
        element = spec.load(b, self._index(along), lane)
        lanes = 1 if lane is None else lane.count
        if element.type.lanes < lanes:
            element = b.op("splat", element, dtype=element.type.dtype, lanes=lanes)
        key = ordered_bits(b, element, spec.key)
        return b.op("not", key) if spec.descending else key


def _sort_spec(emitter: Emitter, node: Node, target: Location) -> SortSpec:
    source, attrs = node.operands[0], node.attrs
    axis = attrs["dim"]
    assert isinstance(axis, int)
    stable: bool | int
    if node.op == "argtopk":
        k = attrs["k"]
        assert isinstance(k, (int, Expr))
        top = Top(k, bool(attrs["sorted"]))
        descending, stable = bool(attrs["largest"]), False
    else:
        top, descending, stable = None, bool(attrs["descending"]), bool(attrs["stable"])
        if not descending and source.dtype.is_integer and len(source.shape) == 1:
            stable = stable or RADIX_SORTED

    return SortSpec(
        source.shape, axis, source.dtype, descending, stable, top,
        lambda _, index, lane: emitter.read(source, index, lane),
        lambda _, index, position: emitter.write(target, index, None, position),
    )  # fmt: skip


SORT = NodeTemplate(
    "sort", frozenset({"argsort", "argtopk"}), bind_node(_sort_spec), plan_sort, emit_sort
)
"""Returns the position of the i-th element along an axis."""
