"""What schedules have in common whose vectors run along k: sums that are added up lane by lane."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tile_schedule import TileSchedule


@dataclass(frozen=True)
class AlongK(TileSchedule):
    """No operand is copied; a tile of C is one vector wide where it is stored.

    lanes    elements of a vector, along k in the sums and along n in results
    rows     rows of a tile
    use_fma  the processor multiplies and adds in one instruction
    work     estimated nanoseconds of all tasks on one core
    """

    lanes: int
    rows: int
    use_fma: bool
    work: Dim

    @property
    def vectors(self) -> int:
        """Vectors of columns of a tile."""
        return 1

    @property
    def width(self) -> int:
        """Columns of a tile in scratch."""
        return self.lanes

    def scratch_bytes(self, spec: Contraction) -> Dim:
        """A thread's scratch: one tile of sums."""
        return part_count(self.rows * self.lanes * spec.accumulate.bytes, LINE_BYTES) * LINE_BYTES
