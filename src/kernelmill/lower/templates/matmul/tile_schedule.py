"""Base of the schedules of a contraction: tiles of C, some of which are a task.

A schedule is a class of one file: its fields, when it is chosen (`plan`), how it wants constant
operands (`layout`), its scratch, its tasks and its code (`emit`). `schedule.py` lists all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, mod, product
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims, part_count, size_hint
from kernelmill.lower.elements.views import unravel
from kernelmill.lower.schedule.candidate import Candidate, first_of, other_cuts
from kernelmill.lower.templates.matmul.packing import Layout, Packable
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tasks import TaskTime, choose_tasks


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
