"""The passes of a nest that reduce: accumulators carried through the loops over the inner axes.

Reductions: identity, folding in elements or accumulators, and ending in one register.

Accumulators have the register form of the operand: half types sum in f32. Every accumulator is a
tuple of registers: one, or (best value, its position) for argmax and argmin.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from math import inf

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, minimum, product, provably_less, provably_nonnegative
from kernelmill.core.dtype import BOOL, I64, DType
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Operand, VType
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import pointwise
from kernelmill.lower.elements.axes import operand_index
from kernelmill.lower.elements.domain import Axis
from kernelmill.lower.elements.emitter import Emitter, ScratchLocation
from kernelmill.lower.elements.loops import Loops
from kernelmill.lower.elements.views import Index
from kernelmill.lower.fusion.groups import Group

Registers = tuple[Register, ...]


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
        self, b: KernelBuilder, old: Registers, new: Registers, mask: Register | None
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

    def _masked(
        self, b: KernelBuilder, mask: Register | None, new: Register, old: Register
    ) -> Register:
        return new if mask is None else b.op("select", mask, new, old)

    def _better(self, b: KernelBuilder, old: Registers, new: Registers) -> Register:
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


WAYS = 4
"""Accumulators side by side, so that an addition need not wait for the one before it."""

RUN = 128
"""Elements of a sum that are added one after the other; the sums of such runs are added then. An
error grows with the additions that an element goes through."""

FEW = 16
"""Elements of loops inside that do not make a run of their own."""


@dataclass(frozen=True)
class Spill:
    """A value that pass number `first_pass` computes and keeps in scratch for later passes."""

    value: Value
    index: Index
    location: ScratchLocation
    first_pass: int

    def further(self, elements: Dim) -> Spill:
        """Return the spill moved by that many elements in scratch."""
        return replace(self, location=replace(self.location, offset=elements))


@dataclass
class Column:
    """A vector along an outer axis: where it starts, which lanes exist, how many if that is known,
    and the results of the reductions that are done."""

    axis: Axis
    start: Dim
    mask: Register | None
    lanes: int | None = None
    known: dict[Value, Register] = field(default_factory=dict[Value, Register])


class Fold:
    """Emits reduction passes for one group."""

    def __init__(
        self, emitter: Emitter, loops: Loops, group: Group, indices: Mapping[Value, Index]
    ) -> None:
        self.e = emitter
        self.b = emitter.builder
        self.loops = loops
        self.group = group
        self.indices = indices
        self._spill: Spill | None = None
        self._beside: Callable[[], None] | None = None

    def along_inner(
        self, axes: Sequence[Axis], reductions: Sequence[Reduction], spill: Spill | None,
        beside: Callable[[], None] | None = None,
    ) -> list[Registers]:  # fmt: skip
        """Emit a pass with vectors along the last axis; return each reduction's scalars. `beside`
        is called for each whole vector. Where the order of the elements counts, a vector is one."""
        self._spill, self._beside = spill, beside
        vectors = bool(axes) and not any(r.is_ordered for r in reductions)
        state, types = self._start(reductions, self.loops.lanes if vectors else 1)

        def leaf(carried: list[Register]) -> list[Register]:
            if not vectors:
                return self._elements(reductions, carried, None)
            return self._vectors(axes[-1], reductions, carried, types)

        steps = ceildiv(axes[-1].extent, self.loops.lanes) if vectors else 1
        final = self._nest(axes[:-1] if vectors else axes, reductions, state, leaf, steps)
        groups = split(reductions, final)
        return [r.across_lanes(self.b, g) for r, g in zip(reductions, groups, strict=True)]

    def along_outer(
        self, axes: Sequence[Axis], reductions: Sequence[Reduction], columns: Sequence[Column]
    ) -> None:
        """Emit a pass over vectors along an outer axis, all columns side by side. The results are
        bound in the columns."""
        self._spill = self._beside = None
        every = [*reductions] * len(columns)
        state, _ = self._start(every, self.loops.lanes)
        width = len(state) // len(columns)

        def leaf(carried: list[Register]) -> list[Register]:
            folded: list[Register] = []
            for number, column in enumerate(columns):
                with self.column(column):
                    own = carried[number * width : (number + 1) * width]
                    folded += self._elements(reductions, own, None)
            return folded

        final = self._nest(axes, every, state, leaf)
        for number, column in enumerate(columns):
            own = split(reductions, final[number * width : (number + 1) * width])
            for reduction, registers in zip(reductions, own, strict=True):
                column.known[reduction.node.result] = self.rounded(reduction, registers)

    @contextmanager
    def column(self, column: Column) -> Generator[None]:
        """Inside, the column's axis stands for its lanes, and its results are known."""
        with self.loops.vector(column.axis, column.start, column.mask, column.lanes):
            for value, register in column.known.items():
                self.e.bind_everywhere(value, register)
            yield

    def finish(self, reduction: Reduction, registers: Registers) -> None:
        """Make a reduction's result known."""
        self.e.bind_everywhere(reduction.node.result, self.rounded(reduction, registers))

    def rounded(self, reduction: Reduction, registers: Registers) -> Register:
        """Return a reduction's result from its accumulator, rounded to its dtype."""
        return pointwise.round_to(self.b, registers[-1], reduction.node.result.dtype)

    def _start(
        self, reductions: Sequence[Reduction], lanes: int
    ) -> tuple[list[Register], list[VType]]:
        starts: list[Operand] = [start for r in reductions for start in r.identity()]
        types = [kind for r in reductions for kind in r.types(lanes)]
        state = [
            self.b.op("splat", start, dtype=kind.dtype, lanes=kind.lanes)
            for start, kind in zip(starts, types, strict=True)
        ]
        return state, types

    def _nest(
        self, axes: Sequence[Axis], reductions: Sequence[Reduction], state: list[Register],
        leaf: Callable[[list[Register]], list[Register]], steps: Dim = 1,
    ) -> list[Register]:  # fmt: skip
        """Loop over `axes` and carry `state` through `leaf`, which folds in so many elements one
        after the other."""
        if not axes:
            return leaf(state)
        inside = product([axis.extent for axis in axes[1:]]) * steps
        few = isinstance(inside, int) and inside <= FEW
        apart = not few and self._makes_runs(reductions, axes[0].extent * inside)
        fresh = self._fresh(reductions, state) if apart else []

        def turn(index: Dim, carried: list[Register]) -> list[Register]:
            with self.e.block():
                self.loops.env[axes[0].name] = index
                if not apart:
                    return self._nest(axes[1:], reductions, carried, leaf, steps)
                part = self._nest(axes[1:], reductions, fresh, leaf, steps)
                return self._join(reductions, carried, part)

        return self._runs(axes[0].extent, reductions, state, turn, inside if few else 1)

    def _makes_runs(self, reductions: Sequence[Reduction], elements: Dim) -> bool:
        """Return whether that many elements may be more than a run of a sum."""
        sums = any(r.is_sum for r in reductions) and not any(r.is_ordered for r in reductions)
        return sums and not provably_less(elements, RUN + 1)

    def _fresh(self, reductions: Sequence[Reduction], state: Sequence[Register]) -> list[Register]:
        """Return accumulators like those of `state`, into which nothing is folded."""
        return self._start(reductions, state[0].type.lanes)[0]

    def _runs(
        self, extent: Dim, reductions: Sequence[Reduction], state: list[Register],
        turn: Callable[[Dim, list[Register]], list[Register]], elements: Dim = 1,
        prefix: str = "i",
    ) -> list[Register]:  # fmt: skip
        """A loop that carries `state` through `turn`, which folds in so many elements one after the
        other: in runs where it is a long sum."""
        if not self._makes_runs(reductions, extent * elements):
            return self._turns(0, extent, state, turn, prefix)
        assert isinstance(elements, int)
        run = RUN // elements
        fresh = self._fresh(reductions, state)
        with self.b.loop(0, ceildiv(extent, run), prefix="r", carry=state) as loop:
            first = loop.index * run
            part = self._turns(first, minimum(first + run, extent), fresh, turn, prefix)
            loop.carry(*self._join(reductions, loop.carried, part))
        return list(loop.results)

    def _turns(
        self, start: Dim, stop: Dim, state: Sequence[Register],
        turn: Callable[[Dim, list[Register]], list[Register]], prefix: str,
    ) -> list[Register]:  # fmt: skip
        with self.b.loop(start, stop, prefix=prefix, carry=state) as loop:
            loop.carry(*turn(loop.index, list(loop.carried)))
        return list(loop.results)

    def _vectors(
        self, axis: Axis, reductions: Sequence[Reduction], state: list[Register],
        types: Sequence[VType],
    ) -> list[Register]:  # fmt: skip
        lanes = self.loops.lanes
        blocks = axis.extent // lanes
        start: Dim = 0
        if not isinstance(blocks, int) or blocks >= 2 * WAYS:
            state = self._ways(axis, reductions, state)
            start = blocks // WAYS * WAYS
        if blocks - start != 0:
            carry = list(zip(types, state, strict=True))
            with (
                self.b.loop(start, blocks, prefix="v", carry=carry) as loop,
                self.loops.vector(axis, loop.index * lanes),
            ):
                loop.carry(*self._elements(reductions, loop.carried, None))
            state = list(loop.results)
        rest = axis.extent - blocks * lanes
        if rest == 0:
            return state
        if provably_nonnegative(axis.extent - 1):
            return self._tail(axis, reductions, state, rest)
        exists = self.b.op("gt", self.b.index(axis.extent), 0)
        with self.b.when(exists) as statement, self.e.block():
            statement.then_yields = tuple(self._tail(axis, reductions, state, rest))
        statement.otherwise_yields = tuple(state)
        statement.results = tuple(self.b.fresh(kind.dtype, kind.lanes) for kind in types)
        return list(statement.results)

    def _tail(
        self, axis: Axis, reductions: Sequence[Reduction], state: list[Register], rest: Dim
    ) -> list[Register]:
        """Fold in the elements left after whole vectors, masked."""
        mask = self.loops.tail_mask(rest)
        with self.loops.vector(axis, axis.extent - rest, mask):
            return self._elements(reductions, state, mask)

    def _ways(
        self, axis: Axis, reductions: Sequence[Reduction], state: list[Register]
    ) -> list[Register]:
        lanes, width = self.loops.lanes, len(state)
        states = list(state)
        for _ in range(WAYS - 1):
            states += self._fresh(reductions, state)

        def turn(index: Dim, carried: list[Register]) -> list[Register]:
            folded: list[Register] = []
            for way in range(WAYS):
                own = carried[way * width : (way + 1) * width]
                with self.loops.vector(axis, index * (lanes * WAYS) + way * lanes):
                    folded += self._elements(reductions, own, None)
            return folded

        every = [*reductions] * WAYS
        results = self._runs(axis.extent // lanes // WAYS, every, states, turn, prefix="v")
        total = results[:width]
        for way in range(1, WAYS):
            total = self._join(reductions, total, results[way * width : (way + 1) * width])
        return total

    def _join(
        self, reductions: Sequence[Reduction], first: Sequence[Register], second: Sequence[Register]
    ) -> list[Register]:
        triples = zip(reductions, split(reductions, first), split(reductions, second), strict=True)
        return [register for r, x, y in triples for register in r.fold(self.b, x, y, None)]

    def _elements(
        self, reductions: Sequence[Reduction], state: Sequence[Register], mask: Register | None
    ) -> list[Register]:
        """Fold the element at the current position into each accumulator."""
        result: list[Register] = []
        for reduction, accumulator in zip(reductions, split(reductions, state), strict=True):
            node = reduction.node
            index = operand_index(node, self.indices[node.result], self.group.inner)
            at = self.loops.at(index)
            new: Registers = (self.e.element(node.operands[0], at),)
            if reduction.is_arg:
                dim = node.attrs["dim"]
                assert isinstance(dim, int)
                new = (*new, self.e.vector(at[dim]))
            result += reduction.fold(self.b, accumulator, new, mask)
        if self._spill is not None:
            at = self.loops.at(self._spill.index)
            register = self.e.element(self._spill.value, at)
            self.e.store_scratch(self._spill.location, at, register)
        if self._beside is not None and mask is None:
            self._beside()
        return result


def split(reductions: Sequence[Reduction], flat: Sequence[Register]) -> list[Registers]:
    """Split a flat list of registers into one tuple for each reduction."""
    result: list[Registers] = []
    position = 0
    for reduction in reductions:
        width = 2 if reduction.is_arg else 1
        result.append(tuple(flat[position : position + width]))
        position += width
    return result
