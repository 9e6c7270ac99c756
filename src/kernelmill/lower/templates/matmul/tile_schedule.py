"""Base of the schedules of a contraction: tiles of C, tasks of several tiles, and their cost.

A schedule is a class in its own file, with its fields, its choice (`plan`), the layout of constant
operands (`layout`), its scratch, its tasks and its code (`emit`). `schedule.py` lists all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product as pairs
from math import prod
from typing import ClassVar, Self

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, minimum, mod, product
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.axes import Dims, part_count, size_hint
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.schedule.candidate import (
    THREADS,
    Candidate,
    block_sizes,
    first_of,
    other_cuts,
    threads_ns,
)
from kernelmill.lower.templates.matmul.packing import Layout, Packable
from kernelmill.lower.templates.matmul.spec import Contraction

_SERIAL_NS = 1000
"""Contractions below this are one task: less is not worth meeting for, even in a super kernel."""


TaskTime = Callable[[int, int], float]
"""Nanoseconds of a task by its row tiles and column tiles."""


def choose_tasks(
    spec: Contraction, tile: tuple[int, int], task_ns: TaskTime, candidate: Candidate
) -> tuple[int, int]:
    """Choose a task's tiles along m and n by the least time summed over several numbers of
    threads."""
    row_tiles = part_count(size_hint(spec.m), tile[0])
    column_tiles = part_count(size_hint(spec.n), tile[1])
    if candidate.row_tiles and candidate.column_tiles:
        return min(candidate.row_tiles, row_tiles), min(candidate.column_tiles, column_tiles)
    batch = prod(size_hint(size) for size in spec.batch)
    serial = batch * task_ns(row_tiles, column_tiles) <= _SERIAL_NS
    threads = (1,) if serial else THREADS

    def spent(blocks: tuple[int, int]) -> float:
        tasks = batch * part_count(row_tiles, blocks[0]) * part_count(column_tiles, blocks[1])
        return threads_ns(tasks, task_ns(*blocks), threads)

    return min(pairs(block_sizes(row_tiles), block_sizes(column_tiles)), key=spent)


def estimated_work(spec: Contraction, products: int, bytes: int, machine: Machine) -> Dim:
    """Return nanoseconds on one core, which makes so many products in each: these, and streaming in
    both operands once, numbers of `bytes`."""
    batch, rows = product(spec.batch), spec.m
    matrices = batch if spec.rows is None else minimum(batch, rows)
    rows = batch * rows if spec.rows is None else rows
    sums = floordiv(rows * spec.n * spec.depth, products)
    return sums + floordiv((rows + matrices * spec.n) * spec.depth * bytes, machine.stream_bytes)


def vector_work(spec: Contraction, lanes: int, machine: Machine) -> Dim:
    """Return the `estimated_work` of multiply-adds of vectors."""
    return estimated_work(spec, machine.products(lanes), spec.accumulate.bytes, machine)


@dataclass(frozen=True)
class TaskPlace:
    """A task of a contraction: `number` is that of its columns and batch index together."""

    builder: KernelBuilder
    lane: Lane
    spec: Contraction
    batch: Dims
    row_block: Dim
    column_block: Dim
    number: Dim


@dataclass(frozen=True, kw_only=True)
class TileSchedule(ABC):
    """The base of schedules.

    lanes, rows, vectors     a tile: `rows` x (`vectors` * `lanes`) elements of C
    use_fma                  the processor multiplies and adds in one instruction
    work                     estimated nanoseconds of all tasks on one core
    row_tiles, column_tiles  tiles that one task computes
    any_rows                 where the number of rows is symbolic, the schedule serves all numbers
    known_rows               the schedule serves only the number of rows that it was planned for
    """

    lanes: int
    rows: int
    vectors: int
    use_fma: bool = False
    work: Dim
    row_tiles: int = 1
    column_tiles: int = 1

    any_rows: ClassVar[bool] = False
    known_rows: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def plan(cls, spec: Contraction, machine: Machine, candidate: Candidate) -> Self | None:
        """Plan the schedule for this contraction on this processor, with the candidate's sizes;
        None if another class is the one. Depends on nothing else."""

    @classmethod
    def layout(cls, product: Packable, machine: Machine, candidate: Candidate) -> Layout | None:
        """Return the layout for constant operands; None where it does not decide that."""
        return None

    def cut(self, spec: Contraction, task_ns: TaskTime, candidate: Candidate) -> Self:
        """Return the schedule with the tasks that take the least time."""
        rows, columns = choose_tasks(spec, (self.rows, self.width), task_ns, candidate)
        return replace(self, row_tiles=rows, column_tiles=columns)

    @property
    def copies_b(self) -> bool:
        """True if a task copies panels of B into scratch."""
        return False

    @property
    def width(self) -> int:
        """Number of columns of a tile."""
        return self.lanes * self.vectors

    def row_blocks(self, spec: Contraction) -> Dim:
        """Return the number of tasks along m."""
        return ceildiv(ceildiv(spec.m, self.rows), self.row_tiles)

    def column_blocks(self, spec: Contraction) -> Dim:
        """Return the number of tasks along n."""
        return ceildiv(ceildiv(spec.n, self.width), self.column_tiles)

    def tasks(self, spec: Contraction) -> Dim:
        """Return the number of tasks; zero when there is nothing to compute."""
        return product(spec.batch) * self.row_blocks(spec) * self.column_blocks(spec)

    @abstractmethod
    def scratch_bytes(self, spec: Contraction) -> Dim:
        """Return the bytes of a thread's scratch."""

    def candidates(self, spec: Contraction) -> Sequence[Candidate]:
        """Return candidates to try in its place where all sizes are known, the likelier first."""
        return first_of(self.other_tasks(spec))

    def other_tasks(self, spec: Contraction) -> Iterator[Candidate]:
        """Yield tasks of other sizes, with the cost model's register tile."""
        rows, columns = self.row_tiles, self.column_tiles
        most_rows = part_count(size_hint(spec.m), self.rows)
        most_columns = part_count(size_hint(spec.n), self.width)
        quarter, four = (rows, part_count(columns, 4)), (rows, columns * 4)
        for down, across in (*other_cuts(rows, columns), quarter, four):
            down, across = min(down, most_rows), min(across, most_columns)
            if (down, across) != (rows, columns):
                yield Candidate(row_tiles=down, column_tiles=across)

    def loss(self, alone: TileSchedule, spec: Contraction, machine: Machine) -> float:
        """Return the part of time by which this schedule of a symbolic number of rows is slower,
        for a contraction of known sizes, than `alone`, which these sizes get; infinite where costs
        do not tell."""
        return 0.0 if replace(self, work=0) == replace(alone, work=0) else math.inf

    def emit_kernel(self, builder: KernelBuilder, spec: Contraction) -> None:
        """Write the kernel's body, and set its `tasks` and `scratch`. The builder must be empty but
        for buffers, which the callbacks and packed operands name."""
        tasks = self.tasks(spec)
        builder.set_tasks(tasks)
        builder.kernel.scratch = self.scratch_bytes(spec)
        if tasks != 0:
            self.emit_task(builder, spec, builder.task)

    def emit_task(self, builder: KernelBuilder, spec: Contraction, task: Dim) -> None:
        """Append the work of one of the schedule's tasks, by its number."""
        rows, columns = self.row_blocks(spec), self.column_blocks(spec)
        number = floordiv(task, rows)
        lane = Lane(builder.fresh_symbol("lane", 0, self.lanes - 1), self.lanes)
        batch = unravel(floordiv(number, columns), spec.batch)
        self.emit(
            TaskPlace(builder, lane, spec, batch, mod(task, rows), mod(number, columns), number)
        )

    @abstractmethod
    def emit(self, place: TaskPlace) -> None:
        """Append the work of the task at this place."""
