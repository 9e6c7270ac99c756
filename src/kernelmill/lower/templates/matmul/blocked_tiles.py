"""The fields and the scratch of the blocked schedule, as its emitters read them."""

from __future__ import annotations

from enum import Enum, auto

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, floordiv, product
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.lower.elements.axes import part_count
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.templates.matmul.spec import Contraction, KeptInput
from kernelmill.lower.templates.matmul.tile_schedule import TileSchedule


@dataclass(frozen=True)
class ScratchLayout:
    """The offsets of regions in a thread's scratch: sums, and values made of them, in elements of
    the accumulator's dtype, operands in elements of their own.

    sums    finished tiles, each `rows` x `width`; before them one vector of zeros
    shift   for dot_i8: for each column of a tile what A's bytes being 128 more adds to its sums
    source  what the source of B's panels keeps
    b       a panel of B: [k][`panel_stride`]
    a       rows of A: [row][k], or [k][row] with `row_stride` where its rows are the closer ones,
            or panels [row tile][k][row of the tile], each k with `row_stride`
    odd_a, odd_b  of words whose numbers are apart, the odd ones, laid out as `a` and `b`
    end     how much there is, in elements of the accumulator's dtype
    """

    sums: int
    shift: int
    source: Dim
    b: Dim
    a: Dim
    odd_a: Dim
    odd_b: Dim
    row_stride: int
    end: Dim


class ReadA(Enum):
    """The place from which tiles read A.

    PACKED    in panels of constants
    IN_PLACE  where it lies
    PREFETCH  the same, and the next tile's rows are brought near meanwhile
    COPIED    in scratch, into which a task first copies its rows
    PANELS    in scratch, in panels that a task first makes of its rows
    """

    PACKED = auto()
    IN_PLACE = auto()
    PREFETCH = auto()
    COPIED = auto()
    PANELS = auto()


class ReadB(Enum):
    """The place from which tiles read B.

    PACKED    in panels of constants
    PREFETCH  the same, and the next panel is brought near while the row tiles are summed
    IN_PLACE  where it lies
    COPIED    in scratch, into which each panel is first copied
    FILLED    in scratch, where B's source makes each panel
    """

    PACKED = auto()
    PREFETCH = auto()
    IN_PLACE = auto()
    COPIED = auto()
    FILLED = auto()

    @property
    def in_scratch(self) -> bool:
        """True if scratch holds a panel."""
        return self in (ReadB.COPIED, ReadB.FILLED)


@dataclass(frozen=True)
class FromRegisters:
    """Sums over all of k go to `store` from registers; for tiles of one row."""


@dataclass(frozen=True)
class ThroughScratch:
    """Sums over all of k go to `store` by way of scratch, which has room for one tile."""


@dataclass(frozen=True)
class InDepthBlocks:
    """Sums of all row tiles of a task grow in scratch, by so many of the first k axis at a time."""

    depth_block: int

    def __post_init__(self) -> None:
        if self.depth_block < 1:
            raise ValueError(f"blocks of {self.depth_block} along k")


Sums = FromRegisters | ThroughScratch | InDepthBlocks
"""The way of sums to `store`."""


@dataclass(frozen=True, kw_only=True)
class BlockedTiles(TileSchedule):
    """Sums of a register tile stay in registers while k runs.

    a, b       where tiles read the operands
    sums       how sums come to `store`
    by_lane    a multiply-add takes one lane of a vector of A's rows for all columns: A is read so
    widened    panels of constants are B, and a task widens each in scratch, where its tiles read
               it: a half type, or of words the even and the odd numbers apart, as then those of A
               are, which is copied
    streams_b  a task reads its panels of B once, one after the other, and what comes some way
               behind is brought near meanwhile
    """

    a: ReadA
    b: ReadB
    sums: Sums
    by_lane: bool = False
    widened: bool = False
    streams_b: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.sums, FromRegisters) and self.rows != 1:
            raise ValueError(f"sums of {self.rows} rows cannot be stored from registers")
        if self.widened and self.b not in (ReadB.PACKED, ReadB.PREFETCH):
            raise ValueError(f"B is {self.b.name}, and not in panels that can be widened")

    @property
    def depth_block(self) -> int:
        """Number of indices of the first k axis at a time, 0 for all of it."""
        return self.sums.depth_block if isinstance(self.sums, InDepthBlocks) else 0

    @property
    def _kept_sums(self) -> int:
        """Number of sums that scratch has room for."""
        match self.sums:
            case FromRegisters():
                return 0
            case ThroughScratch():
                return self.rows * self.width
            case InDepthBlocks():
                return self.row_tiles * self.rows * self.width

    @property
    def copies_b(self) -> bool:
        """True if a task makes panels of B in scratch."""
        return self.b.in_scratch

    def unit(self, spec: Contraction) -> DotUnit:
        """Return the unit that multiplies: the contraction's, or that of its words' halves."""
        return (self.widened and spec.unit.halves) or spec.unit

    def run(self, spec: Contraction) -> int:
        """Return the vectors of the longest run of the source of B's panels, 0 without one."""
        source = spec.b.source
        return 0 if source is None else source.run(self.lanes, self.vectors)

    def panel_stride(self, spec: Contraction) -> int:
        """Return the elements between the rows of a panel of B in scratch."""
        return self.lanes * (self.vectors + self.run(spec))

    def scratch(self, spec: Contraction) -> ScratchLayout:
        """Return the regions of a thread's scratch, each on a cache line of its own."""
        line = LINE_BYTES // spec.accumulate.bytes
        first_sum = part_count(self.lanes, line) * line
        shift = first_sum + part_count(self._kept_sums, line) * line
        source = shift + (part_count(self.width, line) * line if spec.dot_i8 else 0)
        kept = self.kept(spec)
        wide = spec.element.bytes // spec.accumulate.bytes
        b = source + (0 if kept is None else ceildiv(kept.elements, line) * line)
        b, line = floordiv(b, wide), line // wide
        depth = (self.depth_block or spec.k[0]) * product(spec.k[1:])
        if spec.b.contiguous_along == Along.K:
            depth = depth + self.lanes - 1  # turned round in whole blocks
        in_scratch = self.b.in_scratch or self.widened
        panel = depth * self.panel_stride(spec) if in_scratch else 0
        apart = self.unit(spec) != spec.unit
        odd_b = b + ceildiv(panel, line) * line
        a = odd_b + (ceildiv(panel, line) * line if apart else 0)
        panels = self.a is ReadA.PANELS
        rows = self.rows if panels else self.row_tiles * self.rows
        row_stride = part_count(rows, self.lanes) * self.lanes
        copied: Dim = 0
        if panels:  # turned round in whole blocks
            copied = (self.row_tiles * spec.depth + self.lanes - 1) * row_stride
        elif self.a is ReadA.COPIED:
            copied = spec.depth * row_stride
        odd_a = a + ceildiv(copied, line) * line
        end = (odd_a + (ceildiv(copied, line) * line if apart else 0)) * wide
        return ScratchLayout(first_sum, shift, source, b, a, odd_a, odd_b, row_stride, end)

    def scratch_bytes(self, spec: Contraction) -> Dim:
        return self.scratch(spec).end * spec.accumulate.bytes

    def kept(self, spec: Contraction) -> KeptInput | None:
        """Return the input that the source of B's panels keeps, None without a source: for a task's
        columns, or with blocks along k for a tile's."""
        if spec.b.source is None:
            return None
        columns, depth = self.width * (1 if self.depth_block else self.column_tiles), spec.k[0]
        return spec.b.source.kept(self.depth_block or depth, columns, self.lanes, self.run(spec))
