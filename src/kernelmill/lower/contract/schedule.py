"""A schedule: how a contraction is cut into tasks and register tiles, and what is packed."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.lower.contract.spec import Contraction

_LINE_BYTES = 64


def parts(count: int, size: int) -> int:
    """How many parts of `size` hold `count`."""
    return max(1, -(-count // size))


@dataclass(frozen=True)
class ScratchLayout:
    """Where things are in a thread's scratch, in elements of the accumulator's dtype.

    sums    finished tiles, each `rows` x `width`; before them one vector of zeros
    b       a panel of B: [k][width]
    a       rows of A: [row][k], or [k][row] with `row_stride` where its rows are the closer ones
    """

    sums: int
    b: Dim
    a: Dim
    row_stride: int
    bytes: Dim


@dataclass(frozen=True)
class Schedule:
    """What `plan_contraction` decided and `emit_contraction` follows.

    lanes, rows, vectors    the register tile: `rows` x (`vectors` * `lanes`) sums
    pack_a, pack_b          copy that operand into scratch first
    dot                     sums run along k, and are added up across lanes at the end
    depth_block             so many of the first k axis at a time, 0 for all of it
    inline                  hand sums to `store` from registers, not by way of scratch
    fused                   the target multiplies and adds in one instruction
    work                    estimated nanoseconds of all tasks on one core
    row_tiles, column_tiles tiles that one task computes
    """

    lanes: int
    rows: int
    vectors: int
    pack_a: bool
    pack_b: bool
    dot: bool
    depth_block: int
    inline: bool
    fused: bool
    work: Dim
    row_tiles: int = 1
    column_tiles: int = 1

    @property
    def width(self) -> int:
        """Columns of the register tile, and of a panel of B."""
        return self.lanes * self.vectors

    def row_blocks(self, spec: Contraction) -> Dim:
        """Tasks along m."""
        return ceildiv(ceildiv(spec.m, self.rows), self.row_tiles)

    def column_blocks(self, spec: Contraction) -> Dim:
        """Tasks along n."""
        return ceildiv(ceildiv(spec.n, self.width), self.column_tiles)

    def tasks(self, spec: Contraction) -> Dim:
        """The number of tasks; zero when there is nothing to compute."""
        return product(spec.batch) * self.row_blocks(spec) * self.column_blocks(spec)

    def scratch(self, spec: Contraction) -> ScratchLayout:
        """The regions of a thread's scratch, each on a cache line of its own."""
        line = _LINE_BYTES // spec.accumulate.bytes
        tiles = self.row_tiles if self.depth_block else 1
        sums = 0 if self.inline else tiles * self.rows * self.width
        first = self.depth_block or spec.k[0]
        depth = first * product(spec.k[1:])
        first_sum = parts(self.lanes, line) * line
        b = first_sum + parts(sums, line) * line
        a = b + (ceildiv(depth * self.width, line) * line if self.pack_b else 0)
        rows = self.row_tiles * self.rows
        row_stride = parts(rows, self.lanes) * self.lanes
        packed = spec.depth * row_stride if self.pack_a else 0
        end = a + ceildiv(packed, line) * line
        return ScratchLayout(first_sum, b, a, row_stride, end * spec.accumulate.bytes)
