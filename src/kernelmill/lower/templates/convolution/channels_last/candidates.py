"""What of a convolution's schedule may be settled from outside, and which values are worth trying.

The cost model decides what a candidate leaves open, so every candidate gives a schedule that is
right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.templates.convolution.channels_last.geometry import Geometry
from kernelmill.lower.templates.convolution.channels_last.schedule import (
    Dense,
    Depthwise,
    Schedule,
)

MOST = 12
"""Candidates offered for one convolution."""

_WIDEST = 4
_LEAST_BLOCK = 32


@dataclass(frozen=True)
class ConvolutionCandidate:
    """Fields of `Schedule`; None: the cost model decides. `down` and `across` of a dense
    convolution, and `rows` and `panels`, are only looked at together."""

    vectors: int | None = None
    down: int | None = None
    across: int | None = None
    block: int | None = None
    rows: int | None = None
    panels: int | None = None

    def __str__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return " ".join(f"{name}={value}" for name, value in fields if value is not None)

    def fits(self, tile: Dense) -> bool:
        """Whether a register tile is what is asked for."""
        shape = not (self.down and self.across) or (self.down, self.across) == (
            tile.down,
            tile.across,
        )
        return shape and self.vectors in (None, tile.vectors)


def convolution_candidates(geometry: Geometry, schedule: Schedule) -> list[ConvolutionCandidate]:
    """What to try in place of the cost model's schedule, the likelier first; none for an unknown
    number of images."""
    if not isinstance(geometry.images, int):
        return []
    match schedule:
        case Dense():
            shapes = _shapes(geometry, schedule)
        case Depthwise():
            shapes = _channels(geometry, schedule)
    found = zip_longest(shapes, _tasks(geometry, schedule))
    known = dict.fromkeys(one for pair in found for one in pair if one is not None)
    return list(known)[:MOST]


def _shapes(geometry: Geometry, schedule: Dense) -> Iterator[ConvolutionCandidate]:
    """Other register tiles of a dense convolution, and other blocks of its channels."""
    count = part_count(geometry.outs, schedule.lanes)
    for vectors in sorted(range(1, _WIDEST + 1), key=lambda v: abs(v - schedule.vectors)):
        if vectors != schedule.vectors and vectors <= count:
            yield ConvolutionCandidate(vectors=vectors)
    known = schedule.block(geometry)
    for block in (known // 2, known * 2):
        whole = block > 0 and geometry.channels % block == 0
        if whole and min(_LEAST_BLOCK, geometry.channels) <= block:
            yield ConvolutionCandidate(block=block)
    down, across = schedule.down, schedule.across
    smaller = [(down - 1, across)] if down > 1 else [(1, across - 1), (1, across - 2)]
    for rows, columns in smaller:
        if columns > 0:
            yield ConvolutionCandidate(down=rows, across=columns)


def _channels(geometry: Geometry, schedule: Depthwise) -> Iterator[ConvolutionCandidate]:
    """Other channels of a task of a depthwise convolution, and other pixels at a time."""
    most = part_count(geometry.groups, schedule.lanes)
    for vectors in (schedule.vectors * 2, schedule.vectors // 2, schedule.vectors * 4):
        if 0 < vectors <= most:
            yield ConvolutionCandidate(vectors=vectors)
    for across in (schedule.across // 2, schedule.across - 1, schedule.across * 2):
        if 0 < across <= geometry.outputs[1]:
            yield ConvolutionCandidate(across=across)


def _tasks(geometry: Geometry, schedule: Schedule) -> Iterator[ConvolutionCandidate]:
    """Tasks of other sizes, with the cost model's register tile."""
    rows, panels = schedule.rows, schedule.panels
    most_rows, most_panels = schedule.outputs[0], schedule.panel_count(geometry)
    if geometry.depthwise:
        most_panels = 1
    for down, across in (
        (rows, part_count(panels, 2)), (rows, panels * 2), (part_count(rows, 2), panels),
        (rows * 2, panels), (part_count(rows, 2), panels * 2), (rows * 2, part_count(panels, 2)),
        (rows, most_panels), (most_rows, panels),
    ):  # fmt: skip
        down = min(part_count(down, schedule.down) * schedule.down, most_rows)
        across = min(across, most_panels)
        if (down, across) != (rows, panels):
            yield ConvolutionCandidate(rows=down, panels=across)
