"""How schedules that cut C into blocks of rows by columns share it among tasks."""

from __future__ import annotations

from typing import Protocol

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.lower.templates.matmul.spec import Contraction


class _Blocks(Protocol):
    """A task computes `row_tiles` x `column_tiles` blocks of `rows` x `width` elements."""

    @property
    def rows(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def row_tiles(self) -> int: ...

    @property
    def column_tiles(self) -> int: ...

    def row_blocks(self, spec: Contraction) -> Dim: ...

    def column_blocks(self, spec: Contraction) -> Dim: ...


class BlockTasks:
    """What such schedules derive from; they have the sizes of `_Blocks`."""

    def row_blocks(self: _Blocks, spec: Contraction) -> Dim:
        """Tasks along m."""
        return ceildiv(ceildiv(spec.m, self.rows), self.row_tiles)

    def column_blocks(self: _Blocks, spec: Contraction) -> Dim:
        """Tasks along n."""
        return ceildiv(ceildiv(spec.n, self.width), self.column_tiles)

    def tasks(self: _Blocks, spec: Contraction) -> Dim:
        """The number of tasks; zero when there is nothing to compute."""
        return product(spec.batch) * self.row_blocks(spec) * self.column_blocks(spec)
