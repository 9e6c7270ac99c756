"""Costs of a kernel's launches: operations and bytes counted in its text, and their least time.

Loops are multiplied out: where one loop's bounds, or a branch, depend on another's counter, some of
its passes are counted and stand for all. Loops whose end depends on data are not counted; such a
kernel has no number of operations.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, evaluate
from kernelmill.core.target.dot_units import DOT_UNITS
from kernelmill.core.target.isa import Isa
from kernelmill.core.target.machine import Machine
from kernelmill.graph.definition import Cost
from kernelmill.kernel import ir
from kernelmill.kernel.ops import ARITHMETIC, COMPARE, MATH, REDUCE
from kernelmill.kernel.walk import statements_of

_SAMPLES = 4
_TASKS = 8
_COUNTED = ARITHMETIC | COMPARE | MATH | REDUCE | {"select"}
_VECTORS = "operations"
"""Name of the instructions that are not of a dot unit."""


@dataclass
class Work:
    """Operations on elements, instructions on whole vectors (or of dot units) by name, and elements
    read or written by buffer."""

    operations: float = 0.0
    instructions: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    elements: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Work, times: float) -> None:
        self.operations += other.operations * times
        for mine, its in ((self.instructions, other.instructions), (self.elements, other.elements)):
            for name, count in its.items():
                mine[name] += count * times


class _Unknown(Exception):
    """The end of a loop depends on data."""


def work_of(kernel: ir.Kernel, dims: Sequence[int], tasks: int, isa: Isa) -> Work | None:
    """Count all tasks of a launch with these values of the dims; None if it depends on data."""
    counting = _Counting(kernel, isa)
    values = {symbol.name: value for symbol, value in zip(kernel.dims, dims, strict=True)}
    found = Work()
    try:
        chosen = _spread(range(tasks), _TASKS)
        for task in chosen:
            found.add(counting.block(kernel.body, {**values, ir.TASK: task}), tasks / len(chosen))
    except (_Unknown, KeyError):
        return None
    return found


def _spread(numbers: range, most: int) -> list[int]:
    """Return some of the numbers, the first and the last among them."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[i * (len(numbers) - 1) // (most - 1)] for i in range(most)]


class _Counting:
    def __init__(self, kernel: ir.Kernel, isa: Isa) -> None:
        self._isa = isa
        self._made_by: dict[ir.Value, ir.Stmt] = {
            statement.result: statement
            for statement in statements_of(kernel.body)
            if isinstance(statement, (ir.Instr, ir.IndexValue))
        }
        self._straight: dict[int, Work] = {}
        self._bits = isa.vector_bits

    def block(self, body: Sequence[ir.Stmt], values: dict[str, int]) -> Work:
        found = Work()
        found.add(self._straight_part(body), 1)
        for statement in body:
            match statement:
                case ir.Let():
                    known = self._scalar(statement.value, values)
                    values.pop(statement.symbol.name, None)
                    if known is not None:
                        values[statement.symbol.name] = int(known)
                case ir.For():
                    self._loop(statement, values, found)
                case ir.If():
                    self._branch(statement, values, found)
                case ir.Repeat():
                    raise _Unknown
                case _:
                    pass
        return found

    def _loop(self, loop: ir.For, values: dict[str, int], found: Work) -> None:
        start, stop, step = (evaluate(d, values) for d in (loop.start, loop.stop, loop.step))
        passes = range(start, stop, max(step, 1))
        if not passes:
            return
        plain = not any(isinstance(s, (ir.For, ir.If, ir.Repeat)) for s in loop.body)
        chosen = [start] if plain else _spread(passes, _SAMPLES)
        for number in chosen:
            inner = self.block(loop.body, {**values, loop.symbol.name: number})
            found.add(inner, len(passes) / len(chosen))

    def _branch(self, branch: ir.If, values: dict[str, int], found: Work) -> None:
        taken = self._scalar(branch.condition, values)
        if taken is not None:
            body = branch.then if taken else branch.otherwise
            found.add(self.block(body, dict(values)), 1)
            return
        either = [self.block(body, dict(values)) for body in (branch.then, branch.otherwise)]
        found.add(max(either, key=lambda work: sum(work.instructions.values())), 1)

    def _straight_part(self, body: Sequence[ir.Stmt]) -> Work:
        known = self._straight.get(id(body))
        if known is None:
            known = self._straight[id(body)] = Work()
            for statement in body:
                self._count(statement, known)
        return known

    def _count(self, statement: ir.Stmt, work: Work) -> None:
        match statement:
            case ir.Instr():
                self._count_instruction(statement, work)
            case ir.Load() | ir.Gather() | ir.TileLoad():
                kind = statement.result.type
                _touch(work, statement.buffer, kind.lanes * max(1, kind.rows))
            case ir.Store() | ir.Scatter() | ir.TileStore():
                kind = statement.value.type
                _touch(work, statement.buffer, kind.lanes * max(1, kind.rows))
            case _:
                pass

    def _count_instruction(self, made: ir.Instr, work: Work) -> None:
        kind = made.result.type
        if made.op in ("dot", "tile_dot"):
            unit = DOT_UNITS[str(made.attrs["unit"])]
            a: Any = made.args[0]
            words = a.type.lanes if made.op == "tile_dot" else 1
            sums = kind.lanes * max(1, kind.rows)
            work.operations += 2 * sums * words * unit.group
            columns = unit.columns or self._bits // unit.sum.bits
            work.instructions[unit.name] += 1 if unit.columns else kind.lanes / columns
        elif made.op in _COUNTED and not (kind.lanes == 1 and not kind.dtype.is_float):
            first = made.args[0]
            read = first.type if made.op in REDUCE and isinstance(first, ir.Value) else kind
            times = 2 if made.op == "fma" else 1
            work.operations += times * read.lanes
            weight = Cost.FUNCTION.value if made.op in MATH else 1
            vectors = read.lanes * read.dtype.bits / self._bits
            work.instructions[_VECTORS] += weight * vectors

    def _scalar(self, value: ir.Operand, values: Mapping[str, int]) -> int | None:
        """Return the value of a register, if it follows from dims and counters."""
        if not isinstance(value, ir.Value):
            return int(value)
        made = self._made_by.get(value)
        if isinstance(made, ir.IndexValue):
            return _known(made.dim, values)
        if not isinstance(made, ir.Instr):
            return None
        fold = _FOLD.get(made.op)
        parts = [self._scalar(argument, values) for argument in made.args]
        if made.op == "select" and parts[0] is not None:
            return parts[1] if parts[0] else parts[2]
        if fold is None or None in parts:
            return None
        return int(fold(*parts))


_FOLD: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in "add sub mul eq ne lt le gt ge".split()},
    "min": min, "max": max, "and": operator.and_, "cast": lambda a: a,
}  # fmt: skip


def _known(dim: Dim, values: Mapping[str, int]) -> int | None:
    try:
        return evaluate(dim, values)
    except KeyError:
        return None


def _touch(work: Work, buffer: str, elements: int) -> None:
    if buffer != ir.SCRATCH:
        work.elements[buffer] += elements


def compute_time(work: Work, machine: Machine, threads: int) -> float:
    """Return nanoseconds of a work's instructions at the machine's rates, on so many threads."""
    spent = 0.0
    for name, count in work.instructions.items():
        rate = machine.rates.operations
        if name != _VECTORS:
            rate = machine.dot_rate(DOT_UNITS[name])
        spent += count / rate
    return spent / threads
