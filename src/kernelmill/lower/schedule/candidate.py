"""Candidates: parts of a schedule that a search or a user may fix; costs that cost models share.

The cost model chooses the other parts, so every candidate gives a correct schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from kernelmill.core.dataclass import dataclass
from kernelmill.core.target.dot_units import MULTIPLY_ADD
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.axes import part_count

MOST = 12
"""Candidates offered for one kernel."""


@dataclass(frozen=True)
class Candidate:
    """Sizes of a schedule; None: the cost model decides. `str` of it is its label.

    rows, vectors            of a register tile; of an attention the query rows of a task, of a
                             convolution along channels the output rows of a task
    depth_block              steps along k that are summed at a time
    row_tiles, column_tiles  tiles of a task; only looked at together
    down, across             pixels of a register tile; only looked at together
    block                    input channels that are summed at a time
    panels                   of output channels in a task; only looked at together with `rows`
    keys                     of a block of an attention
    """

    rows: int | None = None
    vectors: int | None = None
    depth_block: int | None = None
    row_tiles: int | None = None
    column_tiles: int | None = None
    down: int | None = None
    across: int | None = None
    block: int | None = None
    panels: int | None = None
    keys: int | None = None

    @property
    def settled(self) -> dict[str, int]:
        """Sizes that are fixed, by name."""
        fields = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {name: value for name, value in fields if value is not None}

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.settled.items())


OPEN = Candidate()
"""Settles nothing."""


def first_of(*kinds: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates of each kind in turn, each once, and not too many."""
    found = dict.fromkeys(one for some in zip_longest(*kinds) for one in some if one is not None)
    return list(found)[:MOST]


def other_cuts(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield tasks of half or twice as many rows and columns, the likelier first."""
    less, fewer = part_count(rows, 2), part_count(columns, 2)
    yield from ((rows, fewer), (rows, columns * 2), (less, columns), (rows * 2, columns))
    yield from ((less, columns * 2), (rows * 2, fewer))


def tile_ns(rows: int, vectors: int, machine: Machine) -> float:
    """Return the nanoseconds of a tile for each k: multiply-adds or loads, the longer of both."""
    sums = rows * vectors / machine.dot_rate(MULTIPLY_ADD)
    return max(sums, machine.time(rows + vectors, {}))


def block_sizes(count: int) -> list[int]:
    """Return the sizes when `count` tiles are cut into 1, 2, ... blocks of nearly one size."""
    return sorted({part_count(count, cuts) for cuts in range(1, min(count, 64) + 1)}, reverse=True)


THREADS = (1, 2, 4, 8, 16)
"""Teams of these sizes, for that of a call is not known beforehand."""


def threads_ns(tasks: int, one: float, threads: Sequence[int] = THREADS) -> float:
    """Return the nanoseconds of threads for so many tasks of `one` each, summed over numbers of
    threads."""
    return sum(part_count(tasks, count) * count * one for count in threads)
