"""The tiles that schedules cut C into, a task's place among them, and tasks of other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims, part_count, size_hint
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.templates.matmul.spec import Contraction


class TileGrid(Protocol):
    """A task computes `row_tiles` x `column_tiles` tiles of `rows` x `width` elements."""

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        ...

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        ...

    @property
    def vectors(self) -> int:
        """Vectors of columns of a tile."""
        ...

    @property
    def width(self) -> int:
        """Columns of a tile."""
        ...

    @property
    def row_tiles(self) -> int:
        """A task's tiles along m."""
        ...

    @property
    def column_tiles(self) -> int:
        """A task's tiles along n."""
        ...

    def row_blocks(self, spec: Contraction) -> Dim:
        """Return the number of tasks along m."""
        ...

    def column_blocks(self, spec: Contraction) -> Dim:
        """Return the number of tasks along n."""
        ...


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


def task_sizes(spec: Contraction, schedule: TileGrid) -> Iterator[Candidate]:
    """Yield tasks of other sizes, with the cost model's register tile."""
    rows, columns = schedule.row_tiles, schedule.column_tiles
    most_rows = part_count(size_hint(spec.m), schedule.rows)
    most_columns = part_count(size_hint(spec.n), schedule.width)
    for down, across in (
        (rows, part_count(columns, 2)), (rows, columns * 2), (part_count(rows, 2), columns),
        (rows * 2, columns), (part_count(rows, 2), columns * 2), (rows * 2, part_count(columns, 2)),
        (rows, part_count(columns, 4)), (rows, columns * 4),
    ):  # fmt: skip
        down, across = min(down, most_rows), min(across, most_columns)
        if (down, across) != (rows, columns):
            yield Candidate(row_tiles=down, column_tiles=across)
