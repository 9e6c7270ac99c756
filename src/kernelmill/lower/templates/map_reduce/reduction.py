"""Reductions: identity, folding in elements or accumulators, and ending in one register.

Accumulators have the register form of the operand: half types sum in f32. Every accumulator is a
tuple of registers: one, or (best value, its position) for argmax and argmin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import BOOL, I64, DType
from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Operand, Value, VType

Registers = tuple[Value, ...]


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
        return not self.is_arg and self.dtype.is_float and self._fold == "add"

    @property
    def _fold(self) -> str:
        definition = OPS[self.node.op]
        found = definition.kernel_op_bool if self.dtype == BOOL else definition.kernel_op
        assert found is not None
        return found

    def identity(self) -> tuple[Operand, ...]:
        """Return the accumulator of no elements."""
        highest, lowest = _limits(self.dtype)
        zero, one = (0.0, 1.0) if self.dtype.is_float else (0, 1)
        if self.is_arg:
            return (lowest if self.node.op == "argmax" else highest, 2**62)
        if self.dtype == BOOL:
            return (self._fold == "and",)
        return ({"add": zero, "mul": one, "max": lowest, "min": highest}[self._fold],)

    def types(self, lanes: int) -> tuple[VType, ...]:
        value = VType(self.dtype, lanes)
        return (value, VType(I64, lanes)) if self.is_arg else (value,)

    def fold(
        self, b: KernelBuilder, old: Registers, new: Registers, mask: Value | None
    ) -> Registers:
        """Fold an element (or another accumulator) into `old`, in the lanes of `mask`."""
        if self.node.op == "reduce_maxnum":
            larger = b.op("gt", new[0], old[0])
            return (self._masked(b, mask, b.op("select", larger, new[0], old[0]), old[0]),)
        if not self.is_arg:
            # What is new comes first: max and min test that for NaN while they wait for the rest.
            folded = b.op(self._fold, new[0], old[0], lanes=old[0].type.lanes)
            return (self._masked(b, mask, folded, old[0]),)
        better = self._better(b, old, new)
        if mask is not None:
            better = b.op("and", better, mask)
        lanes = old[0].type.lanes
        chosen = (b.op("select", better, n, o, lanes=lanes) for o, n in zip(old, new, strict=True))
        return tuple(chosen)

    def _masked(self, b: KernelBuilder, mask: Value | None, new: Value, old: Value) -> Value:
        return new if mask is None else b.op("select", mask, new, old)

    def _better(self, b: KernelBuilder, old: Registers, new: Registers) -> Value:
        """Emit whether `new` wins: beyond, or equal and earlier; NaN wins over all numbers."""
        wins = b.op("gt" if self.node.op == "argmax" else "lt", new[0], old[0])
        same = b.op("eq", new[0], old[0])
        if self.dtype.is_float:
            old_nan, new_nan = b.op("ne", old[0], old[0]), b.op("ne", new[0], new[0])
            wins = b.op("or", wins, b.op("and", new_nan, b.op("not", old_nan)))
            same = b.op("or", same, b.op("and", new_nan, old_nan))
        return b.op("or", wins, b.op("and", same, b.op("lt", new[1], old[1])))

    def across_lanes(self, b: KernelBuilder, registers: Registers) -> Registers:
        """Fold the lanes of a vector accumulator into scalars, in a fixed order."""
        lanes = registers[0].type.lanes
        if lanes == 1:
            return registers
        if not self.is_arg:
            return (b.op(f"reduce_{self._fold}", registers[0]),)
        result = tuple(b.op("extract", r, 0) for r in registers)
        for lane in range(1, lanes):
            other = tuple(b.op("extract", r, lane) for r in registers)
            result = self.fold(b, result, other, None)
        return result


def levels(reductions: Sequence[Node], depends: Callable[[Node, Node], bool]) -> list[list[Node]]:
    """Order reductions in passes: each pass needs only the results of earlier ones."""
    level: dict[Node, int] = {}
    for node in reductions:
        level[node] = 1 + max((level[o] for o in level if depends(node, o)), default=-1)
    passes: list[list[Node]] = [[] for _ in range(1 + max(level.values(), default=-1))]
    for node, number in level.items():
        passes[number].append(node)
    return passes
