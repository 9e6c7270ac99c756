"""What of a contraction's schedule may be settled from outside, and which values are worth trying.

The cost model decides what a candidate leaves open, so every candidate gives a schedule that is
right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from kernelmill.lower.elements.sizes import part_count, size_hint
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.context import TileGrid
from kernelmill.lower.templates.matmul.spec import Contraction

MOST = 12
"""Candidates offered for one contraction."""

_WIDEST = 4


@dataclass(frozen=True)
class ContractionCandidate:
    """Fields of a schedule; None: the cost model decides. `row_tiles` and `column_tiles` are only
    looked at together."""

    vectors: int | None = None
    rows: int | None = None
    depth_block: int | None = None
    row_tiles: int | None = None
    column_tiles: int | None = None

    def __str__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return " ".join(f"{name}={value}" for name, value in fields if value is not None)


def first_of(*kinds: Iterator[ContractionCandidate]) -> list[ContractionCandidate]:
    """Candidates of each kind in turn, each once, and not too many."""
    found = dict.fromkeys(one for some in zip_longest(*kinds) for one in some if one is not None)
    return list(found)[:MOST]


def register_tiles(spec: Contraction, schedule: Blocked) -> Iterator[ContractionCandidate]:
    """Other register tiles, and with them other blocks along k."""
    count = part_count(size_hint(spec.n), schedule.lanes)
    for vectors in sorted(range(1, _WIDEST + 1), key=lambda v: abs(v - schedule.vectors)):
        if vectors != schedule.vectors and vectors <= count:
            yield ContractionCandidate(vectors=vectors)
    first = size_hint(spec.k[0])
    block = schedule.depth_block or first
    for depth in (block // 2, block * 2):
        if not 32 <= depth < first or size_hint(spec.m) <= schedule.rows:
            continue
        yield ContractionCandidate(depth_block=depth)
    for rows in (schedule.rows - 1, schedule.rows - 2):
        if rows >= 2 and size_hint(spec.m) > schedule.rows:
            yield ContractionCandidate(rows=rows)


def task_sizes(spec: Contraction, schedule: TileGrid) -> Iterator[ContractionCandidate]:
    """Tasks of other sizes, with the cost model's register tile."""
    rows, columns = schedule.row_tiles, schedule.column_tiles
    most_rows = part_count(size_hint(spec.m), schedule.rows)
    most_columns = part_count(size_hint(spec.n), schedule.width)
    for down, across in (
        (rows, part_count(columns, 2)), (rows, columns * 2), (part_count(rows, 2), columns),
        (rows * 2, columns), (part_count(rows, 2), columns * 2), (rows * 2, part_count(columns, 2)),
        (rows, part_count(columns, 4)), (rows, columns * 4),
    ):  # fmt: skip
        down, across = min(down, most_rows), min(across, most_columns)
        if (down, across) != (rows, columns):
            yield ContractionCandidate(row_tiles=down, column_tiles=across)
