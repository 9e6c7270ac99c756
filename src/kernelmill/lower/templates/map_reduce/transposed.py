"""Maps that read along one axis and write along another: square blocks, transposed in registers.

Reading such an operand along the written axis would touch one cache line for each element. Instead
a block is read in rows along its contiguous axis and transposed, and then every row of the result
is computed from registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, linear_part
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import in_range
from kernelmill.lower.elements.domain import AccessKind, Axis, IndexAccess
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.microkernel import transpose
from kernelmill.lower.templates.map_reduce.walk import Place, Walk


def crosswise_axis(
    vector: Axis, others: Sequence[Axis], accesses: Sequence[IndexAccess], lanes: int
) -> tuple[Axis, list[tuple[Value, Index]]] | None:
    """Return an axis along which loads are contiguous that are not so along `vector`, and these."""
    if not isinstance(vector.extent, int) or vector.extent < lanes or lanes & (lanes - 1):
        return None
    for axis in others:
        loads = [
            (access.value, access.index)
            for access in accesses
            if access.value is not None and _is_crosswise(access, access.value, axis, vector)
        ]
        if loads and isinstance(axis.extent, int) and axis.extent >= lanes:
            return axis, loads
    return None


def _is_crosswise(access: IndexAccess, value: Value, axis: Axis, vector: Axis) -> bool:
    """Return whether a load is contiguous along `axis` and strided along `vector`. A block is read
    ahead of what needs it: what is behind a condition, or looked up, is not."""
    if access.kind is not AccessKind.LOAD or not in_range(access.index, value.shape):
        return False
    along, across = (linear_part(access.expression, a.name) for a in (axis, vector))
    return along is not None and across is not None and along[0] == 1 and across[0] not in (0, 1)


@dataclass(frozen=True)
class TransposeMap:
    """Emits a pure map in blocks of `lanes` x `lanes`; `body` computes and stores at the position
    that the loops are at."""

    walk: Walk
    vector: Axis
    axis: Axis
    loads: Sequence[tuple[Value, Index]]
    body: Callable[[], None]

    def emit(self, others: Sequence[Axis]) -> None:
        """Emit the whole kernel; `others` are the axes but for the two of the blocks."""
        walk, lanes = self.walk, self.walk.lanes
        blocks = ceildiv(self.axis.extent, lanes)
        block = Axis(self.walk.b.fresh_symbol("c", 0, blocks - 1), blocks)

        def column(_: object) -> None:
            first = walk.env[block.name] * lanes
            whole = self.vector.extent // lanes
            with self.walk.b.loop(0, whole, prefix="v") as loop, walk.e.block():
                self._block(first, loop.index * lanes, lanes)
            rest = self.vector.extent - whole * lanes
            if isinstance(rest, int) and rest:
                self._block(first, whole * lanes, rest)

        walk.rows([*others, block], self.vector.extent * lanes, column)

    def _block(self, first: Dim, start: Dim, rows: int) -> None:
        walk, lanes, extent = self.walk, self.walk.lanes, self.axis.extent
        turned = [self._turn(value, index, first, start, rows) for value, index in self.loads]
        place = walk.place(self.vector, start, rows if rows < lanes else None)
        for row in range(lanes):
            walk.env[self.axis.name] = first + row
            if extent % lanes == 0:
                self._row(turned, row, place)
                continue
            exists = walk.b.op("lt", walk.b.index(first + row), walk.b.index(extent))
            with walk.b.when(exists), walk.e.block():
                self._row(turned, row, place)

    def _row(self, turned: Sequence[Sequence[Register]], row: int, place: Place) -> None:
        with self.walk.inside(place):
            for (value, index), vectors in zip(self.loads, turned, strict=True):
                self.walk.e.bind(value, self.walk.at(index), vectors[row])
            self.body()

    def _turn(
        self, value: Value, index: Index, first: Dim, start: Dim, rows: int
    ) -> list[Register]:
        """Return the block's columns: vectors along the written axis, one a step of the other."""
        walk, extent = self.walk, self.axis.extent
        place = walk.place(self.axis, first, None if extent % walk.lanes == 0 else extent - first)
        vectors: list[Register] = []
        for row in range(rows):
            walk.env[self.vector.name] = start + row
            with walk.inside(place):
                vectors.append(walk.e.element(value, walk.at(index)))
        return transpose(walk.b, vectors + vectors[-1:] * (walk.lanes - rows))
