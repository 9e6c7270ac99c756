"""What of a contraction's schedule may be settled from outside, and which values are worth trying.

The cost model decides what a candidate leaves open, so every candidate gives a schedule that is
right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from kernelmill.core.dataclass import dataclass
from kernelmill.lower.elements.sizes import part_count, size_hint
from kernelmill.lower.templates.matmul.spec import Contraction
from kernelmill.lower.templates.matmul.tile_grid import TileGrid

MOST = 12
"""Candidates offered for one contraction."""


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


OPEN = ContractionCandidate()
"""Settles nothing."""


def first_of(*kinds: Iterator[ContractionCandidate]) -> list[ContractionCandidate]:
    """Candidates of each kind in turn, each once, and not too many."""
    found = dict.fromkeys(one for some in zip_longest(*kinds) for one in some if one is not None)
    return list(found)[:MOST]


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
