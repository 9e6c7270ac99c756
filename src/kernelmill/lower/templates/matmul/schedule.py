"""A schedule: how a contraction is cut into tasks and register tiles, and what is packed."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.templates.matmul.spec import Contraction, KeptInput


@dataclass(frozen=True)
class ScratchLayout:
    """Where things are in a thread's scratch, in elements of the accumulator's dtype.

    sums    finished tiles, each `rows` x `width`; before them one vector of zeros
    shift   with bytes: for each column of a tile what A's bytes being 128 more adds to its sums
    source  what the source of B's panels keeps
    b       a panel of B: [k][`panel_stride`]
    a       rows of A: [row][k], or [k][row] with `row_stride` where its rows are the closer ones
    """

    sums: int
    shift: int
    source: Dim
    b: Dim
    a: Dim
    row_stride: int
    bytes: Dim


@dataclass(frozen=True)
class Schedule:
    """What `plan_contraction` decided and `emit_contraction` follows.

    lanes, rows, vectors    the register tile: `rows` x (`vectors` * `lanes`) sums
    pack_a, pack_b          copy that operand into scratch first
    run                     vectors of the longest run that the source of B's panels writes; else 0
    dot                     sums run along k, and are added up across lanes at the end
    inline                  hand sums to `store` from registers, not by way of scratch
    fused                   the processor multiplies and adds in one instruction
    work                    estimated nanoseconds of all tasks on one core
    ahead                   a packed B's next panel is brought near while the row tiles are summed
    rows_ahead              A is read where it lies, the next tile's rows brought near meanwhile
    depth_block             so many of the first k axis at a time, 0 for all of it
    row_tiles, column_tiles tiles that one task computes
    """

    lanes: int
    rows: int
    vectors: int
    pack_a: bool
    pack_b: bool
    run: int
    dot: bool
    inline: bool
    fused: bool
    work: Dim
    depth_block: int = 0
    ahead: bool = False
    rows_ahead: bool = False
    row_tiles: int = 1
    column_tiles: int = 1

    @property
    def width(self) -> int:
        """Columns of the register tile, and of a panel of B."""
        return self.lanes * self.vectors

    @property
    def panel_stride(self) -> int:
        """Elements between the rows of a panel of B in scratch."""
        return self.lanes * (self.vectors + self.run)

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
        line = LINE_BYTES // spec.accumulate.bytes
        tiles = self.row_tiles if self.depth_block else 1
        sums = 0 if self.inline else tiles * self.rows * self.width
        first_sum = part_count(self.lanes, line) * line
        shift = first_sum + part_count(sums, line) * line
        source = shift + (part_count(self.width, line) * line if spec.bytewise else 0)
        kept = self.kept(spec)
        b = source + (0 if kept is None else ceildiv(kept.elements, line) * line)
        depth = (self.depth_block or spec.k[0]) * product(spec.k[1:])
        if spec.b.contiguous_along == "k":
            depth = depth + self.lanes - 1  # turned round in whole blocks
        panel = depth * self.panel_stride if self.pack_b else 0
        a = b + ceildiv(panel, line) * line
        rows = self.row_tiles * self.rows
        row_stride = part_count(rows, self.lanes) * self.lanes
        packed = spec.depth * row_stride if self.pack_a else 0
        end = a + ceildiv(packed, line) * line
        bytes = end * spec.accumulate.bytes
        return ScratchLayout(first_sum, shift, source, b, a, row_stride, bytes)

    def kept(self, spec: Contraction) -> KeptInput | None:
        """What the source of B's panels keeps, if it has one: for a task's columns, or with
        `depth_block` for a tile's."""
        if spec.b.source is None or not self.run:
            return None
        columns = self.width * (1 if self.depth_block else self.column_tiles)
        return spec.b.source.kept(self.depth_block or spec.k[0], columns, self.lanes, self.run)
