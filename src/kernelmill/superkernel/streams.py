"""Parts of the team for launches: independent branches side by side, tiny launches on one thread.

Between launches that everything depends on, or that depend on everything (the trunk), launches
fall into branches that know nothing of each other. Branches are dealt to so many streams as there
are threads to expect, the costliest first to the stream with least to do, and each stream gets
threads in proportion; the trunk has the whole team. That is done only where the estimate says that
the team is better split than kept together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmill.core.target.machine import Machine
from kernelmill.plan.ir import TEAM_PARTS, WHOLE_TEAM, Part, thread_range

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
            first = 0
            for stream, size in zip(streams, sizes, strict=True):
                for i in stream:
                    parts[i] = part_of(first, first + size, threads)
                first += size
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
    sizes = _shared(costs, threads)
    firsts = [sum(sizes[:number]) for number in range(len(sizes))]
    return tuple(
        part_of(firsts[place[tag]], firsts[place[tag]] + sizes[place[tag]], threads)
        if tag
        else WHOLE_TEAM
        for tag in streams
    )


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
