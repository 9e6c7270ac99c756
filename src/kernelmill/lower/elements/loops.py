"""The loops around an element: tasks, rows, inner loops, vectors with a masked tail.

`Loops.env` maps each axis of the domain to its current position, an index expression over the
symbols of the loops that are open.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from kernelmill.core.dim import Dim, ceildiv, minimum, product, provably_nonnegative, substitute
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import views
from kernelmill.lower.elements.domain import TASK_ELEMENTS, Axis, TaskSplit, split_tasks
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index


class Loops:
    """Opens loops in one kernel; `mapping` rewrites the group's axes to those that are looped."""

    def __init__(self, emitter: Emitter, lanes: int, mapping: Mapping[str, Dim]) -> None:
        self.e = emitter
        self.b: KernelBuilder = emitter.builder
        self.lanes = lanes
        self.mapping = mapping
        self.env: dict[str, Dim] = {}
        self.task: Dim = 0

    def at(self, index: Index) -> Index:
        """Return a domain index at the current position."""
        return tuple(substitute(substitute(i, self.mapping), self.env) for i in index)

    def set_tasks(self, tasks: Dim) -> None:
        """Set the number of tasks of the kernel; `task` becomes the number of the running one."""
        self.b.set_tasks(tasks)
        self.task = self.b.task if tasks != 1 else 0

    @contextmanager
    def rows(self, axes: Sequence[Axis], elements_per_row: Dim) -> Generator[None]:
        """Spread the leading `axes` over tasks, loop over the others; inside all are in `env`."""
        split = split_tasks(axes, elements_per_row)
        self.set_tasks(split.tasks)
        prefix, rest = axes[: split.count], axes[split.count :]
        if split.rows == 1 or not prefix:
            self._decode(prefix, self.task)
            with self.nested(rest):
                yield
            return
        start = self.task * split.rows
        stop = minimum(start + split.rows, split.total)
        with self.b.loop(start, stop, prefix="r", high=split.total - 1) as loop, self.e.block():
            self._decode(prefix, loop.index)
            with self.nested(rest):
                yield

    def rows_together(
        self, axes: Sequence[Axis], elements_per_row: Dim, number: int
    ) -> Sequence[AbstractContextManager[list[dict[str, Dim]]]]:
        """The same with so many rows at a time, as loops to be opened one after the other: the
        last takes those that are left one by one, if any task may have such. Inside of a loop there
        are the positions of each of its rows, to be put into `env`."""
        split = split_tasks(axes, elements_per_row)
        if number == 1 or split.count < len(axes) or split.total == 0 or not _many(split, number):
            return [self._one_by_one(axes, elements_per_row)]
        if split.rows != split.total:
            split = replace(split, rows=split.rows // number * number)
        self.set_tasks(split.tasks)
        start = self.task * split.rows
        stop = minimum(start + split.rows, split.total)
        if isinstance(split.total, int) and split.total % number == 0:
            return [self._together(axes, (start, stop), split.total, number)]
        rest = start + (stop - start) // number * number
        return [
            self._together(axes, (start, stop - (number - 1)), split.total, number),
            self._together(axes, (rest, stop), split.total, 1),
        ]

    @contextmanager
    def _one_by_one(
        self, axes: Sequence[Axis], elements_per_row: Dim
    ) -> Generator[list[dict[str, Dim]]]:
        with self.rows(axes, elements_per_row):
            yield [{}]

    @contextmanager
    def _together(
        self, axes: Sequence[Axis], run: tuple[Dim, Dim], total: Dim, number: int
    ) -> Generator[list[dict[str, Dim]]]:
        with (
            self.b.loop(*run, number, prefix="r", high=total - number) as loop,
            self.e.block(),
        ):
            yield [self._positions(axes, loop.index + n) for n in range(number)]

    def _decode(self, axes: Sequence[Axis], row: Dim) -> None:
        self.env.update(self._positions(axes, row))

    def _positions(self, axes: Sequence[Axis], row: Dim) -> dict[str, Dim]:
        positions = views.unravel(row, [axis.extent for axis in axes])
        return dict(zip((axis.name for axis in axes), positions, strict=True))

    @contextmanager
    def nested(self, axes: Sequence[Axis], part: tuple[Dim, Dim] | None = None) -> Generator[None]:
        """Open a loop for each axis, the first outermost, over all or a part [first, end) of it."""
        if not axes:
            yield
            return
        with self.b.loop(*(part or (0, axes[0].extent))) as loop, self.e.block():
            self.env[axes[0].name] = loop.index
            with self.nested(axes[1:]):
                yield

    @contextmanager
    def vector(
        self, axis: Axis, start: Dim, mask: Register | None = None, rest: Dim | None = None
    ) -> Generator[Lane]:
        """Inside, the axis stands for the lanes at `start`, `start` + 1, ...; of those only the
        first `rest`, where that is a number, are ever looked at."""
        last = rest - 1 if isinstance(rest, int) else self.lanes - 1
        lane = Lane(self.b.fresh_symbol("l", 0, last), self.lanes, mask)
        self.env[axis.name] = start + lane.index
        with self.e.lanes(lane):
            yield lane

    def tail_mask(self, rest: Dim) -> Register:
        """Return a mask of the first `rest` lanes."""
        return self.b.op("lane_mask", self.b.index(rest), lanes=self.lanes)

    def vectors(
        self, axis: Axis, body: Callable[[], None], part: tuple[Dim, Dim] | None = None
    ) -> None:
        """Run `body` for whole vectors along `axis`, or a part [first, end), then masked for the
        rest."""
        first, end = part or (0, axis.extent)
        blocks = (end - first) // self.lanes
        if blocks != 0:
            with (
                self.b.loop(0, blocks, prefix="v") as loop,
                self.vector(axis, first + loop.index * self.lanes),
            ):
                body()
        rest = end - first - blocks * self.lanes
        if rest != 0:
            with (
                self.unless_empty(axis),
                self.vector(axis, first + blocks * self.lanes, self.tail_mask(rest), rest),
            ):
                body()

    @contextmanager
    def unless_empty(self, axis: Axis) -> Generator[None]:
        """Run the code inside only if the axis has elements: values that it reads once for all of
        them are loaded without a mask, and need not exist for an empty axis."""
        if provably_nonnegative(axis.extent - 1):
            yield
            return
        exists = self.b.op("gt", self.b.index(axis.extent), 0)
        with self.b.when(exists), self.e.block():
            yield

    def flat(self, axis: Axis, body: Callable[[], None]) -> None:
        """Loop over a single axis: tasks are runs of whole vectors; the last also has the tail."""
        lanes = self.lanes
        run = max(1, TASK_ELEMENTS // lanes)
        blocks = axis.extent // lanes
        tasks = ceildiv(axis.extent, run * lanes)
        self.set_tasks(tasks)
        if blocks != 0:
            start = self.task * run
            stop = minimum(start + run, blocks)
            with (
                self.b.loop(start, stop, prefix="v", high=blocks - 1) as loop,
                self.vector(axis, loop.index * lanes),
            ):
                body()
        rest = axis.extent - blocks * lanes
        if rest != 0:
            last = self.b.op("eq", self.b.index(self.task), self.b.index(tasks - 1))
            with (
                self.b.when(last),
                self.e.block(),
                self.vector(axis, blocks * lanes, self.tail_mask(rest), rest),
            ):
                body()


def count(axes: Sequence[Axis]) -> Dim:
    """Return the number of elements of a domain."""
    return product(axis.extent for axis in axes)


def _many(split: TaskSplit, number: int) -> bool:
    """Return whether a task may have that many rows."""
    sizes = split.rows, split.total
    return not any(isinstance(size, int) and size < number for size in sizes)
