"""Facts of programs, gathered from their compiled form and their counters.

Costs of a kernel's launches: operations and bytes counted in its text, and their least time.

Operations of a loop are multiplied by its passes. If its bounds, or a branch in it, depend on
another loop's counter, some passes are counted and stand for all. Loops whose end depends on data
are not counted, and such a kernel has no number of operations.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import torch

from kernelmill.compiler.gears import gear_of
from kernelmill.compiler.linking import Compiled
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, evaluate, product
from kernelmill.core.dtype import InputRole
from kernelmill.core.target.dot_units import DOT_UNITS
from kernelmill.core.target.isa import Isa, processor_name
from kernelmill.core.target.machine import Machine, committed
from kernelmill.graph.ir import Cost
from kernelmill.kernel import ir
from kernelmill.kernel.ir import ARITHMETIC, COMPARE, MATH, REDUCE, statements_of
from kernelmill.plan.arena import lifetimes
from kernelmill.plan.ir import (
    AtenCall,
    BufferKind,
    BufferSpec,
    Launch,
    SymbolInput,
    TensorInput,
    buffers_in,
)
from kernelmill.report.facts import (
    ArenaTensor,
    Bound,
    MachineFacts,
    Memory,
    ProgramFacts,
    Step,
    Super,
    TensorUse,
)
from kernelmill.runtime.program import Program

_SAMPLES = 4
_TASKS = 8
_COUNTED = ARITHMETIC | COMPARE | MATH | REDUCE | {"select"}
_VECTORS = "operations"
"""Name of the instructions that are not of a dot unit."""


@dataclass
class CountedWork:
    """Operations on elements, instructions on whole vectors (or of dot units) by name, and elements
    read or written by buffer."""

    operations: float = 0.0
    instructions: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    elements: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: CountedWork, times: float) -> None:
        self.operations += other.operations * times
        for mine, its in ((self.instructions, other.instructions), (self.elements, other.elements)):
            for name, count in its.items():
                mine[name] += count * times


class _Unknown(Exception):
    """The end of a loop depends on data."""


def work_of(kernel: ir.Kernel, dims: Sequence[int], tasks: int, isa: Isa) -> CountedWork | None:
    """Count all tasks of a launch with these values of the dims; None if it depends on data."""
    counting = _Counting(kernel, isa)
    values = {symbol.name: value for symbol, value in zip(kernel.dims, dims, strict=True)}
    found = CountedWork()
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
        self._straight: dict[int, CountedWork] = {}
        self._bits = isa.vector_bits

    def block(self, body: Sequence[ir.Stmt], values: dict[str, int]) -> CountedWork:
        found = CountedWork()
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

    def _loop(self, loop: ir.For, values: dict[str, int], found: CountedWork) -> None:
        start, stop, step = (evaluate(d, values) for d in (loop.start, loop.stop, loop.step))
        passes = range(start, stop, max(step, 1))
        if not passes:
            return
        plain = not any(isinstance(s, (ir.For, ir.If, ir.Repeat)) for s in loop.body)
        chosen = [start] if plain else _spread(passes, _SAMPLES)
        for number in chosen:
            inner = self.block(loop.body, {**values, loop.symbol.name: number})
            found.add(inner, len(passes) / len(chosen))

    def _branch(self, branch: ir.If, values: dict[str, int], found: CountedWork) -> None:
        taken = self._scalar(branch.condition, values)
        if taken is not None:
            body = branch.then if taken else branch.otherwise
            found.add(self.block(body, dict(values)), 1)
            return
        either = [self.block(body, dict(values)) for body in (branch.then, branch.otherwise)]
        found.add(max(either, key=lambda work: sum(work.instructions.values())), 1)

    def _straight_part(self, body: Sequence[ir.Stmt]) -> CountedWork:
        known = self._straight.get(id(body))
        if known is None:
            known = self._straight[id(body)] = CountedWork()
            for statement in body:
                self._count(statement, known)
        return known

    def _count(self, statement: ir.Stmt, work: CountedWork) -> None:
        match statement:
            case ir.Instr():
                self._count_instruction(statement, work)
            case ir.Load() | ir.Gather() | ir.TileLoad():
                _touch(work, statement.buffer, statement.result.type)
            case ir.Store() | ir.Scatter() | ir.TileStore():
                _touch(work, statement.buffer, statement.value.type)
            case _:
                pass

    def _count_instruction(self, made: ir.Instr, work: CountedWork) -> None:
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


def _touch(work: CountedWork, buffer: str, kind: ir.VType) -> None:
    if buffer != ir.SCRATCH:
        work.elements[buffer] += kind.lanes * max(1, kind.rows)


def compute_time(work: CountedWork, machine: Machine, threads: int) -> float:
    """Return nanoseconds of a work's instructions at the machine's rates, on so many threads."""
    spent = 0.0
    for name, count in work.instructions.items():
        rate = machine.rates.operations
        if name != _VECTORS:
            rate = machine.dot_rate(DOT_UNITS[name])
        spent += count / rate
    return spent / threads


def machine_facts(machine: Machine) -> MachineFacts:
    """Return the facts of the machine that limits are computed with."""
    calibrated = machine.rates != committed(machine.isa).rates
    threads, memory = torch.get_num_threads(), machine.rates.bytes[-1]
    return MachineFacts(processor_name(), str(machine.isa), threads, calibrated, memory)


def program_facts(compiled: Compiled[Program]) -> ProgramFacts:
    """Return the facts of one program, without times."""
    return _Gathering(compiled, torch.get_num_threads()).facts()


@dataclass
class _Gathering:
    compiled: Compiled[Program]
    threads: int

    def __post_init__(self) -> None:
        self.program, self.plan = self.compiled.program, self.compiled.program.plan
        self.report = self.compiled.report
        names = [ref.name for ref in self.plan.kernels]
        self.entries = dict(zip(names, self.report.kernels, strict=True))
        self.refs = {ref.name: ref for ref in self.plan.kernels}
        self.works: dict[tuple[str, tuple[int, ...], int], CountedWork | None] = {}
        self.lives = lifetimes(self.plan.steps, self.plan.buffers)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Sizes of the last call; empty without a call."""
        known = list(self.program.engine.sizes.values())
        return dict(known[-1].symbols) if known else {}

    def facts(self) -> ProgramFacts:
        plan, counters = self.plan, self.program.report()
        return ProgramFacts(
            name=self.report.name,
            isa=self.report.isa,
            gear=gear_of(self.report.name),
            sizes=self.sizes,
            arguments=tuple(
                f"{entry.name}: {_tensor(entry, self.sizes)}" for entry in self._user_tensors()
            ),
            steps=tuple(self._step(number) for number in range(len(plan.steps))),
            supers=self._supers(),
            splits=tuple(reason for one in self.report.ranges for reason in one.splits),
            memory=self._memory(counters["packed_bytes"]),
            store=tuple(self.entries[ref.name] for ref in plan.kernels),
            repacks=counters["repacks"],
            copies=counters["copies"],
            packing=counters["packing"],
            argument_elements=sum(
                self._number(product(entry.shape)) or 0 for entry in self._user_tensors()
            ),
            products=self.report.f32_products,
        )

    def _user_tensors(self) -> list[TensorInput]:
        inputs = self.plan.inputs
        return [e for e in inputs if isinstance(e, TensorInput) and e.role == InputRole.USER]

    # ---- steps ----------------------------------------------------------------------------------

    def _written(self, step: Launch | AtenCall) -> list[int]:
        if isinstance(step, AtenCall):
            return [buffer for buffer in step.results if buffer >= 0]
        buffers = self.compiled.lowered.kernels[step.kernel].buffers
        pairs = zip(step.buffers, buffers, strict=True)
        return [number for number, own in pairs if own.access != "in" and number >= 0]

    def _read(self, step: Launch | AtenCall) -> list[int]:
        if isinstance(step, AtenCall):
            return [b for b in dict.fromkeys(buffers_in((step.args, step.kwargs))) if b >= 0]
        buffers = self.compiled.lowered.kernels[step.kernel].buffers
        pairs = zip(step.buffers, buffers, strict=True)
        return [number for number, own in pairs if own.access != "out" and number >= 0]

    def _after(self, number: int, read: Sequence[int]) -> tuple[int, ...]:
        found: set[int] = set()
        for earlier in range(number - 1, -1, -1):
            written = set(self._written(self.plan.steps[earlier])) & set(read)
            if written:
                found.add(earlier)
                read = [buffer for buffer in read if buffer not in written]
        return tuple(sorted(found))

    def _step(self, number: int) -> Step:
        step = self.plan.steps[number]
        read, written = self._read(step), self._written(step)
        after = self._after(number, read)
        reads = tuple(self._use(buffer, number) for buffer in read)
        writes = tuple(self._use(buffer, number, written=True) for buffer in written)
        if isinstance(step, AtenCall):
            moved = [use.bytes for use in (*reads, *writes)]
            total = None if None in moved else sum(size or 0 for size in moved)
            return Step(
                number, "aten", step.target, "", (step.target,), step.origin, "", reads,
                writes, after, bytes=total, reason=self._reason(step), module=_module(step.origin),
            )  # fmt: skip
        ref, entry = self.refs[step.kernel], self.entries[step.kernel]
        tasks, work = self._work(step)
        moved_bytes = self._moved(step, work)
        limit, bound = self._limit(step, work, moved_bytes)
        scope = next((s.name for s in self.plan.supers if s.first <= number < s.last), "")
        origin = step.origin or ref.origin
        return Step(
            number, "kernel", entry.name, entry.template, ref.operators, origin,
            scope, reads, writes, after, tasks,
            None if moved_bytes is None else sum(moved_bytes.values()),
            None if work is None else round(work.operations), limit, bound, schedule=entry.schedule,
            module=_module(origin),
        )  # fmt: skip

    def _reason(self, step: AtenCall) -> str:
        for target, reason, origin in self.report.fallbacks:
            if target == step.target and origin == step.origin:
                return reason
        return next((r for t, r, _ in self.report.fallbacks if t == step.target), "")

    def _work(self, step: Launch) -> tuple[int | None, CountedWork | None]:
        dims = [self._number(dim) for dim in step.dims]
        tasks = self._number(step.tasks)
        known = [dim for dim in dims if dim is not None]
        if tasks is None or len(known) < len(dims):
            return tasks, None
        key = step.kernel, tuple(known), tasks
        if key not in self.works:
            kernel = self.compiled.lowered.kernels[step.kernel]
            self.works[key] = work_of(kernel, known, tasks, self.compiled.machine.isa)
        return tasks, self.works[key]

    def _moved(self, step: Launch, work: CountedWork | None) -> dict[int, int] | None:
        """Return bytes by buffer: each element once, or as many as the kernel's accesses reach."""
        found: dict[int, int] = {}
        kernel = self.compiled.lowered.kernels[step.kernel]
        for number, own in zip(step.buffers, kernel.buffers, strict=True):
            if number < 0:
                continue
            whole = self._bytes(self.plan.buffers[number])
            if whole is None:
                return None
            if work is not None:
                reached = work.elements.get(own.name, 0.0) * own.dtype.bytes
                whole = round(min(whole * (2 if own.access == "inout" else 1), reached))
            found[number] = found.get(number, 0) + whole
        return found

    def _limit(
        self, step: Launch, work: CountedWork | None, moved: Mapping[int, int] | None
    ) -> tuple[float | None, Bound]:
        """Return the longer one of the times that operations and bytes take on all threads."""
        machine = self.compiled.machine
        if moved is None:
            return None, ""
        own = sum(moved.values())
        weights = self._weight_bytes()
        spent = 0.0
        for number, size in moved.items():
            level = machine.level(weights + own if self._lasts(number) else own)
            spent += machine.time(0, {level: size})
        spent /= self.threads
        computing = 0.0 if work is None else compute_time(work, machine, self.threads)
        return (computing, "operations") if computing > spent else (spent, "bytes")

    def _lasts(self, number: int) -> bool:
        """Return whether a buffer is a weight: between calls all others pass through the caches."""
        spec = self.plan.buffers[number]
        if spec.kind == BufferKind.INPUT:
            entry = self.plan.inputs[spec.source]
            return isinstance(entry, TensorInput) and entry.role != InputRole.USER
        return spec.kind == BufferKind.PACKED

    def _weight_bytes(self) -> int:
        read = {b for step in self.plan.steps for b in self._read(step) if self._lasts(b)}
        return sum(self._bytes(self.plan.buffers[number]) or 0 for number in read)

    # ---- tensors --------------------------------------------------------------------------------

    def _use(self, number: int, step: int, written: bool = False) -> TensorUse:
        spec = self.plan.buffers[number]
        what = self._what(number, step, written)
        return TensorUse(what, _tensor(spec, self.sizes), self._bytes(spec))

    def _what(self, number: int, step: int, written: bool) -> str:
        spec = self.plan.buffers[number]
        if spec.kind == BufferKind.INPUT:
            entry = self.plan.inputs[spec.source]
            assert not isinstance(entry, SymbolInput)
            role = "" if entry.role == InputRole.USER else f"{entry.role.value} "
            return f"{role}{entry.name}"
        if spec.kind == BufferKind.PACKED:
            return "packed weights"
        results = [getattr(result, "buffer", -1) for result in self.plan.results]
        if written:
            return "result" if number in results else "for later steps"
        makers = [n for n in range(step) if number in self._written(self.plan.steps[n])]
        return f"step {makers[-1]}" if makers else "empty"

    def _number(self, dim: Dim) -> int | None:
        return _known(dim, self.sizes)

    def _bytes(self, spec: BufferSpec | TensorInput) -> int | None:
        count = self._number(product(spec.shape))
        return None if count is None else count * spec.dtype.bytes

    # ---- super kernels, memory -----------------------------------------------------------------

    def _supers(self) -> tuple[Super, ...]:
        told = {made.name: made for one in self.report.ranges for made in one.supers}
        found: list[Super] = []
        for each in self.plan.supers:
            made = told.get(each.name)
            counts = (made.barriers, made.elided) if made else (0, 0)
            found.append(Super(each.name, each.scope, each.first, each.last, *counts))
        return tuple(found)

    def _memory(self, packed: int) -> Memory:
        weights = sum(
            self._bytes(entry) or 0
            for entry in self.plan.inputs
            if isinstance(entry, TensorInput) and entry.role != InputRole.USER
        )
        arena = self._number(self.plan.arena_bytes)
        placed: list[ArenaTensor] = []
        for number, life in self.lives.items():
            spec = self.plan.buffers[number]
            offset, size = self._number(spec.offset), self._number(life.bytes)
            if offset is None or size is None:
                return Memory(arena, (), (), weights, packed)
            what = f"step {life.first}"
            tensor = _tensor(spec, self.sizes)
            placed.append(ArenaTensor(what, tensor, offset, size, life.first, life.last))
        live = tuple(
            sum(each.bytes for each in placed if each.first <= step <= each.last)
            for step in range(len(self.plan.steps))
        )
        return Memory(arena, live, tuple(placed), weights, packed)


_MODULE = re.compile(r"(?:^|\()\w+ ([\w.]+)\)?$")


def _module(origin: str) -> str:
    """Return "fc.0" of "model.py:7 in forward (Linear fc.0)" and of "Linear fc.0"; else ""."""
    found = _MODULE.search(origin)
    return found[1] if found else ""


def _tensor(spec: BufferSpec | TensorInput, sizes: Mapping[str, int]) -> str:
    """Return "f32[3, 4]"; symbols without a value by their names."""
    sizes_known = [_known(dim, sizes) for dim in spec.shape]
    shape = [str(d if n is None else n) for d, n in zip(spec.shape, sizes_known, strict=True)]
    return f"{spec.dtype.name}[{', '.join(shape)}]"
