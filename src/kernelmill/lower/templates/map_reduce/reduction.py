"""Reductions: the start of an accumulator, folding in elements or accumulators, and its end.

Accumulators have the register form of the operand: half types sum in f32. Every accumulator is a
tuple of registers: one, or (best value, its position) for argmax and argmin.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, provably_less
from kernelmill.core.dtype import BOOL, I64, DType
from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Operand
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import pointwise

Registers = tuple[Register, ...]

RUN = 128
"""Elements of a sum that are added one after the other; the sums of such runs are added then. An
error grows with the additions that an element goes through."""


def _limits(dtype: DType) -> tuple[Operand, Operand]:
    """Return the largest and the smallest value of a dtype, infinities where there are any."""
    if dtype.is_float:
        return inf, -inf
    if dtype == BOOL:
        return True, False
    if dtype.kind == "uint":
        return 2**dtype.bits - 1, 0
    return 2 ** (dtype.bits - 1) - 1, -(2 ** (dtype.bits - 1))


@dataclass(frozen=True)
class Reduction:
    """One reduction node of the graph."""

    node: Node

    @property
    def dtype(self) -> DType:
        return self.node.operands[0].dtype.compute

    @property
    def is_arg(self) -> bool:
        return self.node.op in ("argmax", "argmin")

    @property
    def is_ordered(self) -> bool:
        """True if elements must be folded in one after the other, in the order of the dims."""
        return bool(self.node.attrs.get("ordered"))

    @property
    def is_sum(self) -> bool:
        """True if the reduction adds numbers that are rounded."""
        return self.dtype.is_float and self._fold == "add"

    @property
    def _fold(self) -> str:
        if self.is_arg:
            return self.node.op.removeprefix("arg")
        definition = OPS[self.node.op]
        found = definition.kernel_op_bool if self.dtype == BOOL else definition.kernel_op
        assert found is not None
        return found

    def start(self, b: KernelBuilder, lanes: int) -> Registers:
        """Emit the accumulator of no elements."""
        highest, lowest = _limits(self.dtype)
        zero, one = (0.0, 1.0) if self.dtype.is_float else (0, 1)
        none = {"add": zero, "mul": one, "max": lowest, "min": highest, "or": False, "and": True}
        best = b.op("splat", none[self._fold], dtype=self.dtype, lanes=lanes)
        return (best, b.op("splat", 2**62, dtype=I64, lanes=lanes)) if self.is_arg else (best,)

    def fold(
        self, b: KernelBuilder, old: Registers, new: Registers, mask: Register | None = None
    ) -> Registers:
        """Fold an element (or another accumulator) into `old`, in the lanes of `mask`."""
        lanes = old[0].type.lanes
        if self.is_arg:
            better = self._better(b, old, new)
            if mask is not None:
                better = b.op("and", better, mask)
            pairs = zip(old, new, strict=True)
            return tuple(b.op("select", better, n, o, lanes=lanes) for o, n in pairs)
        if self.node.op == "reduce_maxnum":
            folded = b.op("select", b.op("gt", new[0], old[0]), new[0], old[0])
        else:
            # What is new comes first: max and min test that for NaN while they wait for the rest.
            folded = b.op(self._fold, new[0], old[0], lanes=lanes)
        return (folded if mask is None else b.op("select", mask, folded, old[0]),)

    def _better(self, b: KernelBuilder, old: Registers, new: Registers) -> Register:
        """Emit whether `new` wins: beyond, or equal and earlier; NaN wins over all numbers."""
        wins = b.op("gt" if self.node.op == "argmax" else "lt", new[0], old[0])
        same = b.op("eq", new[0], old[0])
        if self.dtype.is_float:
            old_nan, new_nan = b.op("ne", old[0], old[0]), b.op("ne", new[0], new[0])
            wins = b.op("or", wins, b.op("and", new_nan, b.op("not", old_nan)))
            same = b.op("or", same, b.op("and", new_nan, old_nan))
        return b.op("or", wins, b.op("and", same, b.op("lt", new[1], old[1])))

    def end(self, b: KernelBuilder, registers: Registers) -> Register:
        """Emit the result of an accumulator, rounded to its dtype."""
        return pointwise.round_to(b, registers[-1], self.node.result.dtype)

    def across_lanes(self, b: KernelBuilder, registers: Registers) -> Registers:
        """Fold the lanes of a vector accumulator into scalars, in a fixed order."""
        lanes = registers[0].type.lanes
        if lanes == 1:
            return registers
        if not self.is_arg:
            return (b.op(f"reduce_{self._fold}", registers[0]),)
        result = tuple(b.op("extract", r, 0) for r in registers)
        for lane in range(1, lanes):
            result = self.fold(b, result, tuple(b.op("extract", r, lane) for r in registers))
        return result


@dataclass(frozen=True)
class FoldSums:
    """The accumulators of some reductions, `lanes` wide, as one list of registers."""

    b: KernelBuilder
    reductions: Sequence[Reduction]
    lanes: int

    def times(self, number: int) -> FoldSums:
        """Return as many accumulators of each, one set after the other."""
        return FoldSums(self.b, [*self.reductions] * number, self.lanes)

    def start(self) -> list[Register]:
        """Emit accumulators of no elements."""
        return [register for r in self.reductions for register in r.start(self.b, self.lanes)]

    def join(self, first: Sequence[Register], second: Sequence[Register]) -> list[Register]:
        """Fold the second accumulators into the first."""
        triples = zip(self.reductions, self.split(first), self.split(second), strict=True)
        return [register for r, old, new in triples for register in r.fold(self.b, old, new)]

    def split(self, flat: Sequence[Register]) -> list[Registers]:
        """Split a list of registers into one tuple for each reduction."""
        rest = iter(flat)
        return [tuple(next(rest) for _ in range(1 + r.is_arg)) for r in self.reductions]

    def are_long(self, elements: Dim) -> bool:
        """Return whether that many elements may be more than a run of a sum."""
        sums = any(r.is_sum for r in self.reductions)
        ordered = any(r.is_ordered for r in self.reductions)
        return sums and not ordered and not provably_less(elements, RUN + 1)


def shares(state: Sequence[Register], number: int) -> list[Sequence[Register]]:
    """Return the registers of each of so many sets of accumulators."""
    width = len(state) // number
    return [state[n * width : (n + 1) * width] for n in range(number)]
