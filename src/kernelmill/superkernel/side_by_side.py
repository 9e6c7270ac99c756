"""Concurrent launches: threads share the tasks of several launches as if they were one launch, and
wait for each other once.

When a token reads some megabytes of weights, each product takes microseconds, much of it waiting
for its last task. Independent products, such as those of query, key and value, run at the same
time. So does a launch whose tasks only need the result of another's task of the same number, such
as a gate and its factor: each of its tasks follows the other's, on the same thread.

A launch only moves forward, past shorter independent ones, to one that it can run with. The thread
that runs a task does not change its result.

Parts of the team for launches: independent branches in parallel, tiny launches on one thread.

Launches that everything depends on, or that depend on everything, are the trunk. Between them,
launches form independent branches. Branches are assigned to as many streams as there are expected
threads, the costliest first, each to the stream with the least work. Each stream gets threads in
proportion; the trunk has the whole team. This is done only if the estimate is better than that of
the whole team.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import evaluate, product
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.ir import Kernel
from kernelmill.plan import ir
from kernelmill.plan.arena import ArenaBuffer, assign_with_donations, lifetimes
from kernelmill.plan.ir import TEAM_PARTS, WHOLE_TEAM, Part, thread_range
from kernelmill.superkernel.footprint import Footprints, SubKernel, crossing

_WAITS_WORTH = 1000
"""A launch that takes as long on one core as this many waits for other threads is not moved: what
there is to be saved is lost in it."""

_JOINS = 4
"""A launch that is too short for several threads alone runs with others, unless it is shorter than
this fraction of the least work for threads, as products for few keys and values do with the
query's."""

_WINDOW = 16
"""Number of steps after a launch that are considered."""


def run_side_by_side(plan: ir.Plan, kernels: Mapping[str, Kernel], machine: Machine) -> ir.Plan:
    """Return the plan with concurrent launches adjacent and marked; a plan of unknown sizes is
    unchanged. Launches in ranges of super kernels are not moved."""
    if plan.symbols:
        return plan
    steps = _Ordering(plan, kernels, machine).steps()
    if all(step.order is ir.Order.AFTER for step in steps if isinstance(step, ir.Launch)):
        return plan
    return _placed(plan, steps)


@dataclass(frozen=True)
class _Access:
    """The memories that a launch reads and writes, by keys that hold before placement."""

    reads: frozenset[object]
    writes: frozenset[object]

    def meets(self, other: _Access) -> bool:
        """Return whether the order of the two matters."""
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


class _Ordering:
    """The steps of a plan in their new order."""

    def __init__(self, plan: ir.Plan, kernels: Mapping[str, Kernel], machine: Machine) -> None:
        self._plan, self._kernels = plan, kernels
        self._least = machine.region_work_ns
        self._most = machine.sync_ns * _WAITS_WORTH
        self._known: dict[int, _Access] = {}
        # Each buffer of the arena by itself: where they lie is settled later.
        apart = tuple(
            replace(buffer, kind=ir.BufferKind.TENSOR)
            if buffer.kind == ir.BufferKind.ARENA
            else buffer
            for buffer in plan.buffers
        )
        self._footprints = Footprints(replace(plan, buffers=apart), kernels)

    def steps(self) -> list[ir.Step]:
        left = list(self._plan.steps)
        found: list[ir.Step] = []
        while left:
            step = left.pop(0)
            found.append(step)
            if isinstance(step, ir.Launch) and self._can_share(step):
                beside = self._beside(step, left)
                if _works(step) + sum(_works(launch) for _, launch in beside) >= self._least:
                    found += [launch for _, launch in beside]
                    for place, _ in reversed(beside):
                        del left[place]
        return found

    def _beside(self, first: ir.Launch, left: Sequence[ir.Step]) -> list[tuple[int, ir.Launch]]:
        """Return launches to run with a launch, and their places among the following steps."""
        group = [first]
        places: list[int] = []
        passed: list[ir.Launch] = []
        for place, step in enumerate(left[:_WINDOW]):
            if not isinstance(step, ir.Launch) or step.mark or len(group) == ir.MOST_TOGETHER:
                break
            order = self._order_in(group, step) if self._can_share(step) else None
            if order is not None and not any(self._meet(step, other) for other in passed):
                group.append(replace(step, order=order))
                places.append(place)
            elif _works(step) < self._least:
                passed.append(step)
            else:
                break
        return list(zip(places, group[1:], strict=True))

    def _order_in(self, group: Sequence[ir.Launch], launch: ir.Launch) -> ir.Order | None:
        """Return the order of a launch that joins this group; None if it must come after."""
        met = [number for number, other in enumerate(group) if self._meet(launch, other)]
        if not met:
            return ir.Order.BESIDE
        # Behind the last one, and those which that one is behind.
        first = len(group) - 1
        while group[first].order is ir.Order.BEHIND:
            first -= 1
        alike = all(group[number].tasks == launch.tasks for number in met)
        if met[0] < first or not alike:
            return None
        own = self._touched(launch)
        if any(crossing(self._touched(group[number]), own) for number in met):
            return None
        return ir.Order.BEHIND

    def _can_share(self, launch: ir.Launch) -> bool:
        """Return whether several threads run its tasks, or will with those of others, and it writes
        to new memory only."""
        work = _works(launch)
        kinds = {self._plan.buffers[n].kind for n in self._written(launch)}
        return (
            not launch.mark
            and evaluate(launch.tasks, {}) > 1
            and self._least / _JOINS <= work <= self._most
            and kinds <= {ir.BufferKind.ARENA, ir.BufferKind.TENSOR}
        )

    def _meet(self, a: ir.Launch, b: ir.Launch) -> bool:
        return self._access(a).meets(self._access(b))

    def _access(self, launch: ir.Launch) -> _Access:
        known = self._known.get(id(launch))
        if known is None:
            written = self._written(launch)
            reads = {self._memory(n) for n in launch.buffers if n >= 0}
            known = _Access(frozenset(reads), frozenset(map(self._memory, written)))
            self._known[id(launch)] = known
        return known

    def _memory(self, buffer: int) -> object:
        """Return a key of a buffer's memory: one for all arguments, which may share it."""
        return "input" if self._plan.buffers[buffer].kind == ir.BufferKind.INPUT else buffer

    def _written(self, launch: ir.Launch) -> list[int]:
        own = zip(launch.buffers, self._kernels[launch.kernel].buffers, strict=True)
        return [number for number, buffer in own if number >= 0 and buffer.access != "in"]

    def _touched(self, launch: ir.Launch) -> SubKernel:
        return SubKernel(evaluate(launch.tasks, {}), ir.WHOLE_TEAM, self._footprints.of(launch))


def _works(launch: ir.Launch) -> int:
    return evaluate(launch.work, {})


def _placed(plan: ir.Plan, steps: Sequence[ir.Step]) -> ir.Plan:
    """Return the plan with these steps, and an arena in which buffers of launches beside each other
    live as long as the last of these runs."""
    shares = _shared_places(plan)
    lives = lifetimes(steps, plan.buffers)
    extents = extents_beside(steps)
    donated = {
        target: source
        for target, source in shares.items()
        if lives[source].last == lives[target].first not in extents
    }
    lives = {number: extended(life, extents) for number, life in lives.items()}
    return at_places(replace(plan, steps=tuple(steps)), lives, donated)


def at_places(
    plan: ir.Plan, lives: Mapping[int, ArenaBuffer], donated: Mapping[int, int]
) -> ir.Plan:
    """Return the plan with an arena for buffers of these lifetimes. `donated` maps buffers to those
    whose places they take."""
    arena = assign_with_donations(lives, donated)
    offsets = dict(zip(lives, arena.offsets, strict=True))
    buffers = tuple(
        replace(buffer, offset=offsets[number]) if number in offsets else buffer
        for number, buffer in enumerate(plan.buffers)
    )
    return replace(plan, buffers=buffers, arena_bytes=arena.bytes)


def _shared_places(plan: ir.Plan) -> dict[int, int]:
    """The buffers whose place another one has given to them: that is used last by the launch that
    writes them first, which no two others with the same place are."""
    lives = lifetimes(plan.steps, plan.buffers)
    ending = {
        (life.last, plan.buffers[number].offset): number
        for number, life in lives.items()
        if evaluate(product(plan.buffers[number].shape), {})
    }
    found: dict[int, int] = {}
    for number, life in lives.items():
        source = ending.get((life.first, plan.buffers[number].offset), number)
        if source != number and lives[source].bytes == life.bytes:
            found[number] = source
    return found


def extents_beside(steps: Sequence[ir.Step]) -> dict[int, tuple[int, int]]:
    """Map each step that runs with others to the first and the last number of these."""
    found: dict[int, tuple[int, int]] = {}
    first = 0
    for number, step in enumerate(steps):
        if not isinstance(step, ir.Launch) or step.order is ir.Order.AFTER:
            first = number
        else:
            found.update(dict.fromkeys(range(first, number + 1), (first, number)))
    return found


def extended(life: ArenaBuffer, extents: Mapping[int, tuple[int, int]]) -> ArenaBuffer:
    """Extend a lifetime to all launches that run with its first and its last one."""
    first, _ = extents.get(life.first, (life.first, 0))
    _, last = extents.get(life.last, (0, life.last))
    return replace(life, first=first, last=last)


Depends = Sequence[frozenset[int]]
"""For each launch the earlier ones that it needs, directly."""


def narrowed(part: Part, tasks: int, work: int, machine: Machine) -> Part:
    """Return the part without the threads that are not worth waiting for."""
    return (part[0], part[0]) if tasks < 2 or work < _least_shared(machine) else part


def _least_shared(machine: Machine) -> float:
    """Return the work below which a launch is left to one thread, as waiting costs more."""
    return 2 * machine.sync_ns


def branch_parts(
    tasks: Sequence[int], work: Sequence[int], depends: Depends, threads: int, machine: Machine
) -> tuple[Part, ...]:
    """Return a part for each launch, branches side by side where that is estimated to be faster."""
    parts = [WHOLE_TEAM] * len(tasks)
    if threads < 2:
        return tuple(parts)
    for branches in branches_of(depends):
        streams = _dealt(branches, work, threads)
        sizes = _shared([sum(work[i] for i in stream) for stream in streams], threads)
        together = sum(
            _nanoseconds(tasks[i], work[i], threads, machine) for b in branches for i in b
        )
        apart = max(
            sum(_nanoseconds(tasks[i], work[i], size, machine) for i in stream)
            for stream, size in zip(streams, sizes, strict=True)
        )
        if len(streams) > 1 and apart < together:
            for stream, part in zip(streams, _in_a_row(sizes, threads), strict=True):
                for i in stream:
                    parts[i] = part
    return tuple(parts)


def tagged_parts(
    streams: Sequence[str], priorities: Mapping[str, int], work: Sequence[int], threads: int,
    most: int,
) -> tuple[Part, ...]:  # fmt: skip
    """Return a part for each launch by the tag of its stream: "" has the whole team. Tags after the
    first `most` share the last one's part."""
    tags = [tag for tag in dict.fromkeys(streams) if tag]
    place = {tag: min(number, most - 1, threads - 1) for number, tag in enumerate(tags)}
    if len(set(place.values())) < 2:
        return (WHOLE_TEAM,) * len(streams)
    costs = [1] * len(set(place.values()))
    for tag, cost in zip(streams, work, strict=True):
        if tag:
            costs[place[tag]] += int(cost * 1.5 ** priorities.get(tag, 0))
    parts = _in_a_row(_shared(costs, threads), threads)
    return tuple(parts[place[tag]] if tag else WHOLE_TEAM for tag in streams)


def branches_of(depends: Depends) -> list[list[list[int]]]:
    """Return groups of two or more branches that may run side by side, each a list of launches."""
    before: list[frozenset[int]] = []
    for needed in depends:
        before.append(needed.union(*(before[i] for i in needed)) if needed else needed)
    count = len(depends)
    after = [0] * count
    for all_before in before:
        for i in all_before:
            after[i] += 1
    trunk = {i for i in range(count) if len(before[i]) + after[i] == count - 1}
    groups: dict[int, list[int]] = {}
    for i in range(count):
        if i not in trunk:
            groups.setdefault(len(before[i] & trunk), []).append(i)
    found = [_components(group, depends) for group in groups.values()]
    return [branches for branches in found if len(branches) > 1]


def _components(group: Sequence[int], depends: Depends) -> list[list[int]]:
    members = set(group)
    components: list[set[int]] = []
    for i in group:
        joined = {i}
        for component in [c for c in components if c & depends[i] & members]:
            components.remove(component)
            joined |= component
        components.append(joined)
    return [sorted(component) for component in components]


def _dealt(branches: Sequence[list[int]], work: Sequence[int], threads: int) -> list[list[int]]:
    streams: list[list[int]] = [[] for _ in range(min(len(branches), threads, TEAM_PARTS))]
    loads = [0] * len(streams)
    for branch in sorted(branches, key=lambda b: -sum(work[i] for i in b)):
        least = loads.index(min(loads))
        streams[least] += branch
        loads[least] += sum(work[i] for i in branch)
    return streams


def _shared(costs: Sequence[int], threads: int) -> list[int]:
    """Return the threads for each stream, at least one, in proportion to the costs."""
    sizes = [1] * len(costs)
    for _ in range(threads - len(costs)):
        neediest = max(range(len(costs)), key=lambda n: costs[n] / sizes[n])
        sizes[neediest] += 1
    return sizes


def _in_a_row(sizes: Sequence[int], threads: int) -> list[Part]:
    """Return parts of so many threads each, one after the other."""
    ends = accumulate(sizes)
    return [part_of(end - size, end, threads) for size, end in zip(sizes, ends, strict=True)]


def part_of(first: int, last: int, threads: int) -> Part:
    """Return threads `first` up to `last` of a team of so many, as a part."""
    return -(-first * TEAM_PARTS // threads), -(-last * TEAM_PARTS // threads)


def saves(
    tasks: Sequence[int], work: Sequence[int], parts: Sequence[Part], threads: int, machine: Machine
) -> bool:
    """Return whether launches are estimated to be faster as one super kernel."""
    apart = 0.0
    for count, cost in zip(tasks, work, strict=True):
        alone = count < 2 or cost < machine.region_work_ns or threads < 2
        apart += cost if alone else cost / min(count, threads) + machine.region_ns
    times: dict[Part, float] = {}
    for count, cost, part in zip(tasks, work, parts, strict=True):
        size = len(thread_range(part, threads))
        times[part] = times.get(part, 0.0) + _nanoseconds(count, cost, size, machine)
    trunk = sum(t for part, t in times.items() if part in (WHOLE_TEAM, (0, 0)))
    beside = max((t for part, t in times.items() if part not in (WHOLE_TEAM, (0, 0))), default=0.0)
    opens = machine.region_ns if set(parts) != {(0, 0)} else 0
    return trunk + beside + opens < apart


def _nanoseconds(tasks: int, work: int, threads: int, machine: Machine) -> float:
    busy = max(1, min(tasks, threads))
    alone = work < _least_shared(machine) or busy == 1
    return work / busy + (0 if alone else machine.sync_ns)
