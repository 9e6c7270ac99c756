"""Maps that read along one axis and write along another: square blocks, turned in registers.

Reading such an operand straight along the axis that is written would touch one cache line for each
element. Instead a block is read in rows along its own contiguous axis, transposed, and every row of
the result is then computed with its elements at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dim import Dim, ceildiv, linear_part
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import in_range
from kernelmill.lower.elements.domain import Access, AccessKind, Axis
from kernelmill.lower.elements.loops import Loops
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.microkernel import transpose


def crosswise_axis(
    vector: Axis, others: Sequence[Axis], accesses: Sequence[Access], lanes: int
) -> Axis | None:
    """Return an axis along which something is contiguous that is not so along `vector`."""
    if not isinstance(vector.extent, int) or vector.extent < lanes or lanes & (lanes - 1):
        return None
    for axis in others:
        long = isinstance(axis.extent, int) and axis.extent >= lanes
        if long and crosswise_loads(vector, axis, accesses):
            return axis
    return None


def crosswise_loads(
    vector: Axis, axis: Axis, accesses: Sequence[Access]
) -> list[tuple[Value, Index]]:
    """Return the loads that are contiguous along `axis` and strided along `vector`.

    A block is read ahead of what needs it: what is behind a condition, or looked up, is not.
    """
    found: list[tuple[Value, Index]] = []
    for access in accesses:
        if access.kind is not AccessKind.LOAD or access.value is None:
            continue
        if not in_range(access.index, access.value.shape):
            continue
        along = linear_part(access.expression, axis.name)
        across = linear_part(access.expression, vector.name)
        if along is None or across is None or along[0] != 1 or across[0] in (0, 1):
            continue
        found.append((access.value, access.index))
    return found


class TransposeMap:
    """Emits a pure map in blocks of `lanes` x `lanes`; `body` computes and stores at the position
    that the loops are at."""

    def __init__(
        self, loops: Loops, vector: Axis, axis: Axis, loads: Sequence[tuple[Value, Index]],
        body: Callable[[], None],
    ) -> None:  # fmt: skip
        self.loops = loops
        self.b = loops.b
        self.vector = vector
        self.axis = axis
        self.loads = loads
        self.body = body

    def emit(self, others: Sequence[Axis]) -> None:
        """Emit the whole kernel; `others` are the axes but for the two of the blocks."""
        lanes = self.loops.lanes
        blocks = ceildiv(self.axis.extent, lanes)
        block = Axis(self.b.fresh_symbol("c", 0, blocks - 1), blocks)
        with self.loops.rows([*others, block], self.vector.extent * lanes):
            first = self.loops.env[block.name] * lanes
            whole = self.vector.extent // lanes
            with self.b.loop(0, whole, prefix="v") as loop, self.loops.e.block():
                self._block(first, loop.index * lanes, lanes)
            rest = self.vector.extent - whole * lanes
            if isinstance(rest, int) and rest:
                self._block(first, whole * lanes, rest)

    def _block(self, first: Dim, start: Dim, rows: int) -> None:
        loops, lanes = self.loops, self.loops.lanes
        even = self.axis.extent % lanes == 0
        turned = [self._turn(value, index, first, start, rows) for value, index in self.loads]
        mask = loops.tail_mask(rows) if rows < lanes else None
        for lane in range(lanes):
            loops.env[self.axis.name] = first + lane
            if even:
                self._row(turned, lane, start, mask)
                continue
            exists = self.b.op("lt", self.b.index(first + lane), self.b.index(self.axis.extent))
            with self.b.when(exists), loops.e.block():
                self._row(turned, lane, start, mask)

    def _row(
        self, turned: Sequence[Sequence[Register]], lane: int, start: Dim, mask: Register | None
    ) -> None:
        with self.loops.vector(self.vector, start, mask):
            for (value, index), vectors in zip(self.loads, turned, strict=True):
                self.loops.e.bind(value, self.loops.at(index), vectors[lane])
            self.body()

    def _turn(
        self, value: Value, index: Index, first: Dim, start: Dim, rows: int
    ) -> list[Register]:
        """Return the block's columns: vectors along the written axis, one a step of the other."""
        loops, lanes = self.loops, self.loops.lanes
        mask = None
        if self.axis.extent % lanes != 0:
            mask = loops.tail_mask(self.axis.extent - first)
        vectors: list[Register] = []
        for row in range(rows):
            loops.env[self.vector.name] = start + row
            with loops.vector(self.axis, first, mask):
                vectors.append(loops.e.element(value, loops.at(index)))
        while len(vectors) < lanes:
            vectors.append(vectors[-1])
        return transpose(self.b, vectors)
