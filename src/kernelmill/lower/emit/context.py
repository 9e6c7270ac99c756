"""The emit context of templates: the kernel's builder, its lanes and masks, scratch, and the marks
on its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Self

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, mod
from kernelmill.core.dtype import F32, F64, I32, I64, DType
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.in_place import overwritable
from kernelmill.kernel.ir import SCRATCH, Buffer, Kernel, Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import unravel
from kernelmill.plan.arena import ALIGNMENT

LINE_BYTES = ALIGNMENT
"""Regions of scratch begin on cache lines of their own."""


def accumulator(dtype: DType) -> DType:
    """Return the type in which products of this dtype are summed."""
    if dtype.is_float:
        return F64 if dtype == F64 else F32
    return I64 if dtype == I64 else I32


@dataclass(frozen=True)
class EmitContext:
    """The kernel under construction, the lane that its vectors run along, and the dtype of its
    sums, which scratch is made of."""

    builder: KernelBuilder
    lane: Lane
    dtype: DType

    def of_lanes(self, count: int) -> Self:
        """Return the context of vectors of so many lanes."""
        return replace(self, lane=replace(self.lane, count=count))

    def masked(self, left: Dim, size: Dim, block: int = 0, place: int = 0) -> Lane:
        """The lane of a vector with `left` elements of an axis of this `size` from its first on.

        The axis is cut into blocks of `block` elements, vectors unless it says so, of which the
        last may end behind the axis; the vector begins `place` elements behind a block's first. It
        has no mask where every block has all of it.
        """
        lanes = self.lane.count
        whole = place + lanes <= _least(size, block or lanes, lanes)
        return self.lane if whole else self.first_lanes(left)

    def first_lanes(self, left: Dim) -> Lane:
        """Return the lane with a mask of the first `left`, of none where that is negative."""
        count = self.lane.count
        mask = self.builder.op("lane_mask", self.builder.index(left), lanes=count)
        return Lane(self.lane.symbol, count, mask)

    def zeros(self) -> Value:
        zero = 0.0 if self.dtype.is_float else 0
        return self.builder.op("splat", zero, dtype=self.dtype, lanes=self.lane.count)

    def read(self, offset: Dim, lanes: int = 1) -> Value:
        """Load elements of scratch."""
        return self.builder.load(SCRATCH, offset, self.dtype, lanes)

    def write(self, offset: Dim, value: Value, mask: Value | None = None) -> None:
        """Store elements in scratch."""
        self.builder.store(SCRATCH, offset, value, mask)

    def read_packed(self, name: str, offset: Dim, lanes: int = 1) -> Value:
        """Load elements of a packed operand, in the dtype of the sums."""
        value = self.builder.load(name, offset, self.packed_dtype(name), lanes)
        return self.builder.cast(value, self.dtype)

    def packed_dtype(self, name: str) -> DType:
        """Return the dtype of a packed operand's buffer."""
        return next(one.dtype for one in self.builder.kernel.buffers if one.name == name)

    @contextmanager
    def counted(self, start: Dim, stop: Dim, step: int = 1, prefix: str = "i") -> Generator[Dim]:
        """Open a loop; a loop of one pass is its index alone."""
        if isinstance(start, int) and isinstance(stop, int) and 0 < stop - start <= step:
            yield start
            return
        with self.builder.loop(start, stop, step, prefix=prefix) as loop:
            yield loop.index


def _least(size: Dim, block: int, lanes: int) -> int:
    """Return the least number of elements that every block of an axis has, the last one too; 0 if
    no vector is always full."""
    if isinstance(size, int):
        return size - (size - 1) // block * block
    parts = range(block, 0, -lanes)
    return next((part for part in parts if block % part == 0 and mod(size, part) == 0), 0)


def task_index(
    builder: KernelBuilder, sizes: Sequence[Dim], task: Dim | None = None
) -> tuple[Dim, ...]:
    """Return the index of a task, the running one by default, in a row-major grid of these sizes.

    Each position is a symbol of its own, so that expressions made of it stay short.
    """
    # A grid without tasks still needs an index for the code that never runs.
    grid = [1 if size == 0 else size for size in sizes]
    return tuple(
        position if isinstance(position, int) else builder.let(builder.index(position), 0, size - 1)
        for position, size in zip(
            unravel(builder.task if task is None else task, grid), grid, strict=True
        )
    )


@contextmanager
def lane_vectors(
    builder: KernelBuilder, start: Dim, stop: Dim, lanes: int, whole: bool, prefix: str
) -> Generator[tuple[Dim, Lane | None]]:
    """Open a loop over positions, so many lanes at a time, masked where they are beyond the last
    unless there are `whole` vectors; yield the first position, and the lane, None of one lane."""
    with builder.loop(start, stop, lanes, prefix=prefix) as loop:
        if lanes == 1:
            yield loop.index, None
            return
        left = None if whole else builder.index(stop - loop.index)
        mask = None if left is None else builder.op("lane_mask", left, lanes=lanes)
        yield loop.index, Lane(builder.fresh_symbol("l", 0, lanes - 1), lanes, mask)


Choice = tuple[Dim | None, Callable[[], None]]
"""Code to emit if the dim is positive; None: in all other cases."""


def choose_count(
    builder: KernelBuilder, size: Dim, block: Dim, most: int, emit: Callable[[int], None]
) -> None:
    """Emit code for as many of `most` rows, say, as block number `block` of an axis of this size
    has: of a known size for all of them and those of the last block, else for every number."""
    if mod(size, most) == 0:
        emit(most)
    elif isinstance(size, int):
        full, rest = divmod(size, most)
        edge: Choice = (None, lambda: emit(rest))
        choose(builder, [(full - block, lambda: emit(most)), edge] if full else [edge])
    else:
        left = size - block * most
        counts = [(left - count + 1, partial(emit, count)) for count in range(most, 1, -1)]
        choose(builder, [*counts, (None, partial(emit, 1))])


def choose(builder: KernelBuilder, choices: Sequence[Choice]) -> None:
    """Emit all of them, the last of which is for all other cases."""
    (positive, emit), *others = choices
    if positive is None:
        emit()
        return
    with builder.when(builder.op("gt", builder.index(positive), 0)) as branch:
        emit()
    with builder.otherwise(branch):
        choose(builder, others)


def mark_buffers(kernel: Kernel, machine: Machine) -> None:
    """Mark the outputs that may overwrite inputs, and those too large to stay in a cache."""
    inputs = overwritable(kernel)

    def marked(buffer: Buffer) -> Buffer:
        over = tuple(sorted(inputs.get(buffer.name, ())))
        return replace(buffer, over=over, nontemporal=_passes_caches(buffer, machine))

    kernel.buffers[:] = map(marked, kernel.buffers)


def _passes_caches(buffer: Buffer, machine: Machine) -> bool:
    elements = buffer.elements
    if buffer.access != "out" or not isinstance(elements, int) or not machine.isa.has_nontemporal:
        return False
    return elements * buffer.dtype.bytes >= machine.shared_bytes
