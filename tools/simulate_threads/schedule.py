"""The native schedule, played: which threads do which tasks, and when. Times are in nanoseconds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kernelmill.plan.ir import MOST_TOGETHER, Order, SuperKernel, thread_range

TEAM = 16
"""As in runtime/native/launch.c."""

ROUNDING = 1e-3
"""Nanoseconds that nobody has lost."""


@dataclass(frozen=True)
class Costs:
    """What the simulated machine costs, in nanoseconds, bytes a nanosecond and cores.

    transfer        of a cache line from one core to another of its node
    far             times as long between nodes
    claim           of a thread's own tasks, with its line in its cache
    region          of opening and closing a region of two threads
    node_cores      cores of a memory node
    node_bandwidth  of its memory
    cache           bytes of the cache that the cores share
    threshold       least work that is worth several threads, as the plan estimates it
    """

    transfer: float = 80.0
    far: float = 2.5
    claim: float = 10.0
    region: float = 1500.0
    node_cores: int = 32
    node_bandwidth: float = 150.0
    cache: int = 32 << 20
    threshold: int = 4000

    def passing(self, thread: int) -> float:
        """Return the time of a line between the first thread and this one."""
        return self.transfer * (self.far if thread >= self.node_cores else 1.0)

    def share(self, threads: int) -> float:
        """Return the bytes a nanosecond that each of so many threads has."""
        nodes = math.ceil(threads / self.node_cores)
        return self.node_bandwidth * nodes / threads


@dataclass(frozen=True)
class Work:
    """A launch as measured: nanoseconds of all tasks on one thread, the plan's estimate of them,
    and bytes from memory. A super kernel is one, with its launches as `parts`."""

    name: str
    tasks: int
    time: float
    estimate: int
    bytes: int = 0
    order: Order = Order.AFTER
    fused: SuperKernel | None = None
    parts: tuple[Work, ...] = ()


@dataclass(frozen=True)
class Serial:
    """What is no launch: nanoseconds of an operator of ATen."""

    name: str
    time: float


Step = Work | Serial


@dataclass
class Lost:
    """Nanoseconds that a step takes with many threads, and how many more than its part of one
    thread's time, by cause."""

    name: str
    threads: int
    tasks: int
    time: float
    causes: dict[str, float] = field(default_factory=dict[str, float])


# ---- the rules ----------------------------------------------------------------------------------


def threads_for(tasks: int, work: int, most: int, threshold: int) -> int:
    """Return how many threads so many tasks are worth, as `threads_for` of launch.c does."""
    if tasks <= 1 or work < threshold:
        return min(1, tasks)
    busy = work // (threshold >> 1)
    threads = min(most, tasks, busy)
    while threads > TEAM and threads * threads > TEAM * busy:
        threads -= 1
    return threads


def groups_of(works: Sequence[Work]) -> list[list[Work]]:
    """Return the launches that run beside each other."""
    found: list[list[Work]] = []
    for work in works:
        joins = work.order != Order.AFTER and work.fused is None
        if joins and found and found[-1][0].fused is None and len(found[-1]) < MOST_TOGETHER:
            found[-1].append(work)
        else:
            found.append([work])
    return found


@dataclass
class Schedule:
    """Launches with at most so many threads."""

    most: int
    costs: Costs
    lost: list[Lost] = field(default_factory=list[Lost])

    def run(self, steps: Sequence[Step]) -> float:
        """Return the time of these steps, and add to `lost` where it is lost."""
        spent, works = 0.0, list[Work]()
        for step in (*steps, None):
            if isinstance(step, Work):
                works.append(step)
                continue
            spent += self._launches(groups_of(works))
            works = []
            if step is not None:
                spent += step.time
                self._note(step.name, 1, 0, step.time, {"ATen": step.time * (1 - 1 / self.most)})
        return spent

    def _worth(self, group: Sequence[Work], threshold: int) -> int:
        tasks = sum(work.tasks for work in group)
        return threads_for(tasks, sum(work.estimate for work in group), self.most, threshold)

    def _launches(self, groups: Sequence[Sequence[Work]]) -> float:
        """Return the time of a row of launches: `run` of launch.c."""
        spent, at, threshold = 0.0, 0, self.costs.threshold
        while at < len(groups):
            threads = self._worth(groups[at], threshold)
            if threads > 1 and groups[at][0].fused is None:
                row = list(_until_super(groups[at:]))
                worth = [self._worth(group, threshold) for group in row]
                row = row[: max(n for n, own in enumerate(worth) if own > 1) + 1]
                spent += self._region(row, max(worth))
                at += len(row)
                continue
            spent += self._fused(groups[at][0], threads) if threads > 1 else self._alone(groups[at])
            at += 1
        return spent

    def _region(self, groups: Sequence[Sequence[Work]], team: int) -> float:
        spent = self._opening(team)
        for group in groups:
            threads = min(self._worth(group, self.costs.threshold // 2), team)
            spent += self._together(group, threads) if threads > 1 else self._alone(group)
        return spent

    def _opening(self, team: int) -> float:
        spent = self.costs.region + 2 * sum(map(self.costs.passing, range(2, team)))
        self._note("regions", team, 0, spent, {"regions": spent})
        return spent

    def _alone(self, group: Sequence[Work]) -> float:
        spent = sum(work.time for work in group)
        self._explain(group, 1, spent)
        return spent

    def _together(self, group: Sequence[Work], threads: int) -> float:
        lengths = self._lengths(group, threads)
        spent = claims(lengths, threads, self.costs)
        self._explain(group, threads, spent)
        return spent

    def _lengths(self, group: Sequence[Work], threads: int) -> list[float]:
        """Return the time of each task by its number among those of all launches, as long as it
        takes beside so many threads."""
        firsts, tasks = list[int](), 0
        for work in group:
            behind = work.order == Order.BEHIND and firsts
            firsts.append(firsts[-1] if behind else tasks)
            tasks = firsts[-1] + work.tasks
        lengths = [0.0] * tasks
        for first, work in zip(firsts, group, strict=True):
            each = self._task(work, min(threads, tasks))
            for number in range(first, first + work.tasks):
                lengths[number] += each
        return lengths

    def _task(self, work: Work, threads: int) -> float:
        if not work.tasks:
            return 0.0
        return max(work.time, work.bytes / self.costs.share(threads)) / work.tasks

    def _fused(self, work: Work, threads: int) -> float:
        """Return the time of a super kernel, whose driver splits tasks evenly."""
        assert work.fused is not None
        ends: list[float] = []
        free = [0.0] * threads
        for number, part in enumerate(work.parts):
            waits = work.fused.waits[number]
            begin = max((ends[n] for n in waits), default=0.0)
            begin += self.costs.passing(threads - 1) if waits else 0.0
            team = thread_range(work.fused.parts[number], threads)
            each = self._task(part, threads)
            for place, thread in enumerate(team):
                own = part.tasks * (place + 1) // len(team) - part.tasks * place // len(team)
                free[thread] = max(free[thread], begin) + own * each
            ends.append(max(free[thread] for thread in team))
        spent = self._opening(threads) + max(free)
        self._explain([work], threads, max(free))
        return spent

    # ---- where time is lost ----------------------------------------------------------------------

    def _note(
        self, name: str, threads: int, tasks: int, spent: float, causes: Mapping[str, float]
    ) -> None:
        own = {cause: value for cause, value in causes.items() if value > ROUNDING}
        self.lost.append(Lost(name, threads, tasks, spent, own))

    def _explain(self, group: Sequence[Work], threads: int, spent: float) -> None:
        """Say what is lost between an equal part for each thread and this time."""
        plain = self._lengths(group, 1)
        total, tasks = sum(work.time for work in group), max(1, len(plain))
        slowed = max(1.0, sum(self._lengths(group, threads)) / max(sum(plain), 1e-9))
        most = longest(total, tasks, min(self.most, tasks))
        own = longest(total, tasks, threads)
        self._note(
            " | ".join(work.name for work in group), threads, len(plain), spent,
            {
                "few tasks": most - total / self.most,
                "small": own - most,
                "memory": own * (slowed - 1),
                "claims": spent - own * slowed,
            },
        )  # fmt: skip


def longest(total: float, tasks: int, threads: int) -> float:
    """Return the time of the thread that has most of these tasks, if they are dealt out evenly."""
    return total / tasks * math.ceil(tasks / threads)


def _until_super(groups: Sequence[Sequence[Work]]) -> Iterator[Sequence[Work]]:
    for group in groups:
        if group[0].fused is not None:
            return
        yield group


def claims(lengths: Sequence[float], threads: int, costs: Costs) -> float:
    """Return when the first thread knows that all tasks are done, as team.c has them claimed.

    Each thread has a range of the tasks. It claims the first half of what is left of its own, then
    takes the last half of what another has. When its own are done, it counts what it has run in a
    word that all share.
    """
    tasks, until = len(lengths), [0.0, *accumulate(lengths)]
    ranges = [[tasks * i // threads, tasks * (i + 1) // threads] for i in range(threads)]
    told, queue = 0.0, list[tuple[float, int]]()
    for thread in reversed(range(threads)):  # the first thread tells the last one first
        told += costs.passing(thread) if thread else 0.0
        queue.append((told + (costs.passing(thread) if thread else 0.0), thread))
    heapq.heapify(queue)
    uncounted, counting, done = [0] * threads, 0.0, 0
    while queue:
        now, thread = heapq.heappop(queue)
        first, end = ranges[thread]
        if first < end:
            middle = first + (end - first + 1) // 2
            ranges[thread][0] = middle
            uncounted[thread] += middle - first
            heapq.heappush(queue, (now + costs.claim + until[middle] - until[first], thread))
            continue
        if uncounted[thread]:
            counting = max(now, counting) + costs.passing(thread)
            done, uncounted[thread] = done + uncounted[thread], 0
            heapq.heappush(queue, (counting, thread))
            continue
        victim = next(
            (other for n in range(1, threads) if _has(ranges[other := (thread + n) % threads])), -1
        )
        if victim >= 0:
            first, end = ranges[victim]
            middle = first + (end - first) // 2
            ranges[victim][1] = middle
            uncounted[thread] += end - middle
            spent = 2 * costs.passing(max(thread, victim)) + until[end] - until[middle]
            heapq.heappush(queue, (now + spent, thread))
    assert done == tasks
    return counting + costs.transfer


def _has(own: Sequence[int]) -> bool:
    return own[0] < own[1]
