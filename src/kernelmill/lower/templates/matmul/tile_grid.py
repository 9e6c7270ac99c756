"""The tiles that schedules cut C into, and a task's place among them."""

from __future__ import annotations

from typing import Protocol

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.sizes import Dims
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
        """Tasks along m."""
        ...

    def column_blocks(self, spec: Contraction) -> Dim:
        """Tasks along n."""
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
