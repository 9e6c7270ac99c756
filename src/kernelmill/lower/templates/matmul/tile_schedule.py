"""Base of the schedules of a contraction: tiles of C, some of which are a task.

A schedule is a class of one file: its fields, when it is chosen (`plan`), how it wants constant
operands (`layout`), its scratch, its tasks and its code (`emit`). `schedule.py` lists all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.machine import Machine
from kernelmill.lower.schedule.candidate import Candidate, first_of
from kernelmill.lower.templates.matmul.packing import Layout, Packable
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tile_grid import TaskPlace, TileGrid, task_sizes


class TileSchedule(ABC):
    """The base of schedules; they have the sizes of `TileGrid`, and `work`, the estimated
    nanoseconds of all tasks on one core.

    any_rows    the schedule does for every number of rows, where that is not known
    known_rows  it is for the number of rows that it was made for, and no other
    """

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

    @property
    def copies_b(self) -> bool:
        """True if a task copies panels of B into scratch."""
        return False

    def row_blocks(self: TileGrid, spec: Contraction) -> Dim:
        """Return the number of tasks along m."""
        return ceildiv(ceildiv(spec.m, self.rows), self.row_tiles)

    def column_blocks(self: TileGrid, spec: Contraction) -> Dim:
        """Return the number of tasks along n."""
        return ceildiv(ceildiv(spec.n, self.width), self.column_tiles)

    def tasks(self: TileGrid, spec: Contraction) -> Dim:
        """Return the number of tasks; zero when there is nothing to compute."""
        return product(spec.batch) * self.row_blocks(spec) * self.column_blocks(spec)

    @abstractmethod
    def scratch_bytes(self, spec: Contraction) -> Dim:
        """Return the bytes of a thread's scratch."""

    def candidates(self: TileGrid, spec: Contraction) -> Sequence[Candidate]:
        """Return candidates to try in its place where all sizes are known, the likelier first."""
        return first_of(task_sizes(spec, self))

    def loss(self, alone: TileSchedule, spec: Contraction, machine: Machine) -> float:
        """Return the part of time by which this schedule of a symbolic number of rows is slower,
        for a contraction of known sizes, than `alone`, which these sizes get; infinite where costs
        do not tell."""
        first: Any = self
        second: Any = alone
        return 0.0 if replace(first, work=0) == replace(second, work=0) else math.inf

    @abstractmethod
    def emit(self, place: TaskPlace) -> None:
        """Append the work of one task."""
