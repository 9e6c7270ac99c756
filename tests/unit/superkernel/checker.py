"""Proves a super kernel's synchronisation on paper: every dependence across threads is covered.

It does not use what footprint.py reasons with. It splits the tasks as the driver does for one size
of the team, collects the bytes each thread touches in each sub-kernel, follows what each thread
knows of the others from wait to wait (a vector clock), and asks for each two accesses that must
keep their order whether the later thread knows that the earlier one is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmill.plan.ir import Part, thread_range
from kernelmill.superkernel.footprint import Footprint, Memory

Access = tuple[Memory, bool, int, int]


def uncovered(
    tasks: Sequence[int],
    parts: Sequence[Part],
    waits: Sequence[Sequence[int]],
    touches: Sequence[Sequence[Footprint]],
    threads: int,
) -> str:
    """The first dependence that `threads` threads could violate, in words; "" if there is none."""
    clocks = [[0] * threads for _ in range(threads)]  # clocks[t][u]: u is behind that many
    published: list[dict[int, list[int]]] = []
    history: list[list[tuple[int, Access]]] = [[] for _ in range(threads)]
    for number, count in enumerate(tasks):
        members = thread_range(parts[number], threads)
        arrived: dict[int, list[int]] = {}
        for thread in members:
            for awaited in waits[number]:
                for other, clock in published[awaited].items():
                    clocks[thread] = list(map(max, clocks[thread], clock))
                    clocks[thread][other] = max(clocks[thread][other], awaited + 1)
        for place, thread in enumerate(members):
            begin = count * place // len(members)
            end = count * (place + 1) // len(members)
            accesses = list(_accesses(touches[number], begin, end))
            for other in range(threads):
                if other == thread:
                    continue
                for earlier, access in history[other]:
                    done = clocks[thread][other] > earlier or earlier == number
                    if not done and any(_clash(access, a) for a in accesses):
                        return (
                            f"with {threads} threads, thread {thread} in sub-kernel {number} does "
                            f"not know that thread {other} is behind sub-kernel {earlier}"
                        )
            arrived[thread] = [*clocks[thread]]
            arrived[thread][thread] = number + 1
            history[thread] += [(number, access) for access in accesses]
        published.append(arrived)
        for thread in members:
            clocks[thread][thread] = number + 1
    return ""


def _accesses(touches: Sequence[Footprint], begin: int, end: int) -> Iterator[Access]:
    if begin < end:
        for touch in touches:
            yield (touch.memory, touch.writes, *touch.of_tasks(begin, end))


def _clash(a: Access, b: Access) -> bool:
    return a[0] == b[0] and (a[1] or b[1]) and a[2] < b[3] and b[2] < a[3]
