"""Orders of the elements along one axis: sort and topk, as positions.

Equal elements have the order that eager gives them. A stable sort has only one; otherwise it is
what the C++ standard library that torch is built with makes of them (`introsort.py`): its `sort`,
and for topk its `nth_element` or `partial_sort`, as ATen's SortingKernel.cpp and TopKImpl.h call
them.

Elements are compared by integer keys: floats by their bits, so that zeros are equal and NaN, all
equal too, are above everything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelmill.core.dim import Dim, ceildiv, minimum, mod, product
from kernelmill.core.dtype import F64, I32, I64, DType
from kernelmill.core.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import size_hint
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.templates.sort.introsort import STACK_WORDS, Item, Items, Sorter, ordered_bits

Dims = tuple[Dim, ...]

LoadElement = Callable[[KernelBuilder, Dims, Lane | None], Value]
"""`load(builder, index, lane)`: one element, or the vector along the lane's symbol at the sorted
axis. In the compute type (f32 for half types)."""

StorePosition = Callable[[KernelBuilder, Dims, Value], None]
"""`store(builder, index, position)`: one element of the result, i64."""

RADIX_SORTED = 32768
"""Of so many integers and more torch sorts a single ascending row by a way that is stable (ATen's
`can_use_radix_sort`, with its grain size)."""

_TASK_ELEMENTS = 2048
_PARTIAL = 64
"""Of so many times k elements and more, topk keeps the k in a heap."""


@dataclass(frozen=True)
class Top:
    """Only the first `count` positions; without `sorted` in the order in which they are found."""

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
        """What elements are compared by."""
        return I64 if self.dtype in (F64, I64) else I32

    @property
    def size(self) -> Dim:
        """Elements of a row."""
        return self.shape[self.axis]

    @property
    def length(self) -> Dim:
        """Positions that a row gives."""
        return self.size if self.top is None else self.top.count


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
    """Rows are independent; short ones share a task."""
    total = product(size for axis, size in enumerate(spec.shape) if axis != spec.axis)
    rows = max(1, _TASK_ELEMENTS // size_hint(spec.size))
    lanes = machine.isa.vector_bits // spec.key.bits
    while lanes > 1 and isinstance(spec.size, int) and lanes >= 2 * spec.size:
        lanes //= 2
    held = spec.length if _streams(spec) is True else spec.size
    words = STACK_WORDS + ceildiv(held * spec.key.bytes, 8) + held
    rounds = 2 if spec.top is not None else size_hint(spec.size).bit_length() + 1
    work = total * spec.size * 2 * rounds + 1
    return SortSchedule(rows, lanes, ceildiv(total, rows), words * 8, work)


def _streams(spec: SortSpec) -> bool | None:
    """Whether the best are kept in a heap while the row is read; None: that depends on its size."""
    if spec.top is None:
        return False
    left = spec.size - spec.top.count * _PARTIAL
    return left >= 0 if isinstance(left, int) else None


def emit_sort(builder: KernelBuilder, spec: SortSpec, schedule: SortSchedule) -> None:
    """Write the kernel's body, and set its `tasks` and `scratch`."""
    builder.set_tasks(schedule.tasks)
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
    """One row, whose other positions are `place`."""

    def __init__(
        self, builder: KernelBuilder, spec: SortSpec, schedule: SortSchedule, place: Dims
    ) -> None:
        self.b, self.spec, self.place = builder, spec, place
        self.lanes = schedule.lanes
        held = spec.length if _streams(spec) is True else spec.size
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
            streams = _streams(spec)
            if streams is None:
                longest = b.index(spec.size - spec.top.count * _PARTIAL)
                with b.when(b.op("ge", longest, 0)) as branch:
                    self._partial_sort(spec.top)
                with b.otherwise(branch):
                    self._select(spec.top)
            elif streams:
                self._partial_sort(spec.top)
            else:
                self._select(spec.top)
        with b.loop(0, spec.length, prefix="j") as loop:
            spec.store(b, self._index(loop.index), self.items.get(loop.index).position)

    def _index(self, along: Dim) -> Dims:
        axis = self.spec.axis
        return (*self.place[:axis], along, *self.place[axis:])

    def _partial_sort(self, top: Top) -> None:
        """The first elements are a heap, which better ones that follow replace its worst in."""
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
        """The first elements of the row, in order."""
        b = self.b
        with self._vectors(0, count) as (start, keys, mask):
            number = b.op("iota", dtype=I64, lanes=self.lanes)
            number = b.op("add", number, b.index(start))
            self.items.set_vector(start, keys, number, mask)

    @contextmanager
    def _vectors(self, start: Dim, stop: Dim) -> Generator[tuple[Dim, Value, Value | None]]:
        """A loop over elements, `lanes` at a time: the first one, their keys, and a mask of those
        that exist."""
        b, lanes = self.b, self.lanes
        with b.loop(start, stop, lanes, prefix="v") as loop:
            if lanes == 1:
                yield loop.index, self._key(loop.index, None), None
                return
            mask = None
            if mod(stop - start, lanes) != 0:
                mask = b.op("lane_mask", b.index(stop - loop.index), lanes=lanes)
            lane = Lane(b.fresh_symbol("l", 0, lanes - 1), lanes, mask)
            yield loop.index, self._key(loop.index + lane.index, lane), mask

    def _key(self, along: Dim, lane: Lane | None) -> Value:
        b, spec = self.b, self.spec
        element = spec.load(b, self._index(along), lane)
        lanes = 1 if lane is None else lane.count
        if element.type.lanes < lanes:
            element = b.op("splat", element, dtype=element.type.dtype, lanes=lanes)
        key = ordered_bits(b, element, spec.key)
        return b.op("not", key) if spec.descending else key
