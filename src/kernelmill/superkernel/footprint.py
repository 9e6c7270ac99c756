"""Footprints: bytes that each task of a launch accesses, by the kernel's index expressions.

A footprint is `stride * task + [low, high]` in bytes of one memory: buffers that may share memory
have the same memory's name, and places in the arena count from its beginning.

Waits of sub-kernels: the dependences that cross threads, each covered once.

A thread walks the sub-kernels in the plan's order, does its share of those of its part of the team,
and counts them. Waiting for sub-kernel p means waiting until every thread of p's part is past p.
All waits are for earlier sub-kernels, so no number of threads can deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import (
    Dim,
    Op,
    bounds,
    ceildiv,
    evaluate,
    linear_part,
    product,
    substitute,
    sym,
    symbols,
    terms_of,
)
from kernelmill.kernel import ir
from kernelmill.kernel.ir import statements_of
from kernelmill.plan.ir import WHOLE_TEAM, BufferKind, Launch, Part, Plan

Memory = tuple[str, int]


@dataclass(frozen=True)
class Footprint:
    """Bytes that task t accesses at most: from stride * t + low up to stride * t + high. `stride` 0
    is the whole buffer, for every task."""

    memory: Memory
    writes: bool
    stride: int
    low: int
    high: int

    def of_tasks(self, first: int, last: int) -> tuple[int, int]:
        """Return the first byte and the end of the bytes of tasks [first, last)."""
        return self.stride * first + self.low, self.stride * (last - 1) + self.high


class Footprints:
    """The footprints of a plan's launches; each kernel is looked through once."""

    def __init__(self, plan: Plan, kernels: Mapping[str, ir.Kernel]) -> None:
        self.plan = plan
        self.kernels = kernels
        self._known: dict[tuple[str, tuple[Dim, ...]], _Ranges] = {}

    def of(self, launch: Launch) -> tuple[Footprint, ...]:
        """Return the footprints of tasks of a launch of constant size, without the status word,
        which tasks only set to one value. An event is a byte that one launch writes and another
        reads."""
        plan, kernel = self.plan, self.kernels[launch.kernel]
        found = _events(launch)
        ranges = self._ranges(launch, kernel)
        for number, buffer in zip(launch.buffers, kernel.buffers, strict=True):
            if number < 0:
                continue
            memory, start = _memory(plan, number)
            size = buffer.dtype.bytes
            elements = evaluate(product(plan.buffers[number].shape), {})
            whole = max(evaluate(buffer.elements, ranges.sizes), elements) * size
            own = ranges.of(buffer.name)
            stride, low, high = (0, 0, whole) if own is None else tuple(part * size for part in own)
            writes = buffer.access != "in"
            found.append(Footprint(memory, writes, stride, start + low, start + high))
        return tuple(found)

    def _ranges(self, launch: Launch, kernel: ir.Kernel) -> _Ranges:
        key = (launch.kernel, launch.dims)
        if key not in self._known:
            values = zip(kernel.dims, launch.dims, strict=True)
            self._known[key] = _Ranges(kernel, {s.name: evaluate(d, {}) for s, d in values})
        return self._known[key]


def _events(launch: Launch) -> list[Footprint]:
    mark = launch.mark
    return [
        Footprint(("event", event), writes, 0, 0, 1)
        for events, writes in ((mark.awaited, False), (mark.given, True))
        for event in sorted(events)
    ]


def _memory(plan: Plan, number: int) -> tuple[Memory, int]:
    buffer = plan.buffers[number]
    if buffer.kind == BufferKind.INPUT:
        return ("input", buffer.source), 0
    if buffer.kind == BufferKind.ARENA:
        return ("arena", 0), evaluate(buffer.offset, {})
    return (buffer.kind, number), 0


_ACCESSES = (ir.Load, ir.Store, ir.TileLoad, ir.TileStore)


class _Ranges:
    """Elements of each buffer that one task touches: (stride, low, high) or None."""

    def __init__(self, kernel: ir.Kernel, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._values: dict[ir.Value, Dim] = {}
        self._lets: dict[str, Dim] = {}
        self._ambiguous: set[str] = set()
        self._spans: dict[str, list[tuple[int, int, int] | None]] = {}
        for statement in statements_of(kernel.body):
            self._note(statement)

    def of(self, buffer: str) -> tuple[int, int, int] | None:
        spans = self._spans.get(buffer, [])
        known = [span for span in spans if span is not None]
        if not known or len(known) < len(spans):
            return None
        strides = {stride for stride, _, _ in known}
        low, high = min(low for _, low, _ in known), max(high for _, _, high in known)
        (stride, *others) = strides
        # Tasks whose pieces overlap or interleave share everything.
        return None if others or stride <= 0 or high - low > stride else (stride, low, high)

    def _note(self, statement: ir.Stmt) -> None:
        if isinstance(statement, ir.IndexValue):
            self._values[statement.result] = statement.dim
        elif isinstance(statement, ir.Let):
            self._let(statement)
        elif isinstance(statement, ir.For):
            self._loop(statement)
        elif isinstance(statement, (ir.Gather, ir.Scatter)):
            self._spans.setdefault(statement.buffer, []).append(None)
        elif isinstance(statement, _ACCESSES) and statement.buffer != ir.SCRATCH:
            loads = isinstance(statement, (ir.Load, ir.TileLoad))
            span = self._span(statement, statement.result if loads else statement.value)
            self._spans.setdefault(statement.buffer, []).append(span)

    def _let(self, statement: ir.Let) -> None:
        name = statement.symbol.name
        dim = self._values.get(statement.value)
        known = name in self._lets or name in self._ambiguous
        if dim is None or known:
            # Its range holds in any case; which of two values it has is not followed.
            self._lets.pop(name, None)
            self._ambiguous.add(name)
        else:
            self._lets[name] = self._resolved(dim)

    def _loop(self, loop: ir.For) -> None:
        """Bind the loop's symbol in its body: its start plus a number of steps."""
        start, step = self._resolved(loop.start), self._resolved(loop.step)
        passes = _most_passes(start, self._resolved(loop.stop), step)
        if passes is None:
            self._lets.pop(loop.symbol.name, None)
        else:
            # Symbols of one name are taken for equal, so the name has the range in it.
            number = sym(f"{loop.symbol.name}.{passes}", 0, max(0, passes - 1))
            self._lets[loop.symbol.name] = start + step * number

    def _resolved(self, dim: Dim) -> Dim:
        known = {name: self._lets[name] for name in symbols(dim) if name in self._lets}
        return substitute(dim, {**self.sizes, **known})

    def _span(
        self, access: ir.Load | ir.Store | ir.TileLoad | ir.TileStore, value: ir.Value
    ) -> tuple[int, int, int] | None:
        parts = linear_part(self._resolved(access.index), ir.TASK)
        step, kind = self._resolved(access.stride), value.type
        if parts is None or not isinstance(parts[0], int) or not isinstance(step, int):
            return None
        low, high = bounds(parts[1])
        if low is None or high is None:
            return None
        steps, width = (kind.rows, kind.lanes) if kind.rows else (kind.lanes, 1)
        reach = (steps - 1) * step
        return parts[0], low + min(reach, 0), high + max(reach, 0) + width


def _most_passes(start: Dim, stop: Dim, step: Dim) -> int | None:
    """Return how often a loop runs at most; a stop that is the smaller of two is at most either."""
    stops = [stop]
    match terms_of(stop):
        case (((Op() as least,), 1),) if least.kind == "min":
            stops = [least.a, least.b]
        case _:
            pass
    counts = [ceildiv(one - start, step) for one in stops]
    return min((count for count in counts if isinstance(count, int)), default=None)


@dataclass(frozen=True)
class SubKernel:
    """A launch of a super kernel: number of tasks, part of the team, tasks' footprints."""

    tasks: int
    part: Part
    touches: tuple[Footprint, ...]


def conflicting(first: SubKernel, second: SubKernel) -> bool:
    """Return whether the two access the same bytes and one writes: their order matters."""
    return any(_conflict(a, first.tasks, b, second.tasks) for a, b in _pairs(first, second))


def crossing(first: SubKernel, second: SubKernel) -> bool:
    """Return whether a thread may need, or overwrite, results of another thread in `first`.

    Not so when both are split alike and each task meets the same task only, and when one and the
    same thread runs both.
    """
    if first.part == second.part and first.part[0] == first.part[1]:
        return False
    alike = first.part == second.part and first.tasks == second.tasks
    return any(
        _conflict(a, first.tasks, b, second.tasks) and not (alike and _own_rows(a, b))
        for a, b in _pairs(first, second)
    )


def waits_of(kernels: Sequence[SubKernel]) -> tuple[tuple[int, ...], ...]:
    """Map each sub-kernel to the earlier ones it waits for, without those that are known to be
    done: the same threads have waited for them before, or wait for one that did."""
    waits: list[tuple[int, ...]] = []
    behind: list[frozenset[int]] = []  # what is done for sure when a thread begins number i
    for number, kernel in enumerate(kernels):
        # What all threads of a sub-kernel have waited for before it.
        same = (i for i in range(number) if _within(kernel.part, kernels[i].part))
        known = frozenset[int]().union(*(behind[i] for i in same))
        chosen: list[int] = []
        for earlier in range(number - 1, -1, -1):
            if earlier not in known and crossing(kernels[earlier], kernel):
                chosen.append(earlier)
                known |= {earlier} | behind[earlier] | _passed(kernels, earlier)
        waits.append(tuple(sorted(chosen)))
        behind.append(known)
    return tuple(waits)


def _passed(kernels: Sequence[SubKernel], number: int) -> frozenset[int]:
    """Return the sub-kernels done once a sub-kernel is: those whose threads are among its own."""
    part = kernels[number].part
    return frozenset(earlier for earlier in range(number) if _within(kernels[earlier].part, part))


def _within(inner: Part, outer: Part) -> bool:
    """Return whether the threads of one part are among the other's, whatever the size of the team.

    Of parts that begin apart this cannot be said: in a small team each has one thread at least.
    """
    return outer == WHOLE_TEAM or (inner[0] == outer[0] and inner[1] <= outer[1])


def _pairs(first: SubKernel, second: SubKernel) -> list[tuple[Footprint, Footprint]]:
    return [
        (a, b)
        for a in first.touches
        for b in second.touches
        if a.memory == b.memory and (a.writes or b.writes)
    ]


def _conflict(a: Footprint, tasks_a: int, b: Footprint, tasks_b: int) -> bool:
    if tasks_a < 1 or tasks_b < 1:
        return False
    (low_a, high_a), (low_b, high_b) = a.of_tasks(0, tasks_a), b.of_tasks(0, tasks_b)
    return low_a < high_b and low_b < high_a


def _own_rows(a: Footprint, b: Footprint) -> bool:
    """Return whether task i of one and task j of the other never meet unless i = j."""
    return a.stride == b.stride > 0 and max(a.high, b.high) - min(a.low, b.low) <= a.stride
