"""Search for good gears of several dims: each call runs at the gear of least work that holds it.

The work of a call is the product of its sizes. For one dim there is an exact answer
(`best_ladder`). For several dims there are too many assignments of calls to gears, so the search
starts from the cheapest merges, and improves one size of one gear at a time until nothing helps.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray


def best_ladder(weights: Mapping[int, float], most: int) -> tuple[int, ...]:
    """Return at most `most` of these sizes, ascending, such that padding every size up to the next
    one of them makes the least work: the sum of weight times padded size. The largest is included.

    Time grows with most * sizes * log(sizes): the start of the last gap between neighbouring gears
    moves up with its end, so each row is filled by halving.
    """
    sizes = sorted(weights)
    if len(sizes) <= most:
        return tuple(sizes)
    # before[i]: the weight of the first i sizes; work of a gap: its weight times its last size.
    before = [0.0, *accumulate(weights[size] for size in sizes)]
    best = [0.0] + [inf] * len(sizes)
    begins: list[list[int]] = []
    for _ in range(most):
        best, begin = _row(sizes, before, best)
        begins.append(begin)
    chosen: list[int] = []
    end = len(sizes)
    for begin in reversed(begins):
        if end > 0:
            chosen.append(sizes[end - 1])
            end = begin[end]
    return tuple(reversed(chosen))


def _row(
    sizes: Sequence[int], before: Sequence[float], best: Sequence[float]
) -> tuple[list[float], list[int]]:
    """Return the least work of the first j sizes with one gear more than `best` has, and the starts
    of the last gaps."""
    row, begin = [0.0] * len(best), [0] * len(best)
    waiting = [(1, len(sizes), 0, len(sizes) - 1)]
    while waiting:
        low, high, first, last = waiting.pop()
        if low > high:
            continue
        middle = (low + high) // 2
        row[middle], begin[middle] = min(
            (best[i] + (before[middle] - before[i]) * sizes[middle - 1], i)
            for i in range(first, min(last, middle - 1) + 1)
        )
        waiting.append((low, middle - 1, first, begin[middle]))
        waiting.append((middle + 1, high, begin[middle], last))
    return row, begin


def padded(size: int, ladder: Sequence[int]) -> int:
    """Return the least gear that holds a size, from an ascending ladder whose last one does."""
    return ladder[bisect_left(ladder, size)]


_Key = TypeVar("_Key")
Point = tuple[int, ...]
Floats = NDArray[np.float64]

_POINTS = 256
"""Most distinct calls after rounding up: merging compares all pairs."""


def work_of(points: Mapping[Point, float], gears: Sequence[Point]) -> float:
    """Return the work of all points, each padded to its cheapest gear; inf if one has none."""
    return float((_works(points, gears).min(1) @ _weights(points)) if gears else inf)


def best_rows(points: Mapping[Point, float], most: int) -> tuple[Point, ...]:
    """Return at most `most` gears, any combination of sizes each, in ascending order.

    `points` are calls (a size for each dim) with their weights. Every point is held by a gear.
    """
    if len(points) <= most:
        return tuple(sorted(points))
    if len(next(iter(points))) == 1:
        sizes = best_ladder({point[0]: weight for point, weight in points.items()}, most)
        return tuple((size,) for size in sizes)
    starts = [_merged(_rounded(points), most), tuple(itertools.product(*best_grid(points, most)))]
    found = [_improved(points, start) for start in starts]
    return tuple(sorted(min(found, key=lambda gears: work_of(points, gears))))


# ---- every size of one dim with every one of the others -------------------------------------


def best_grid(
    points: Mapping[Point, float], most: int, ties: Sequence[int] = (), least: int = 1
) -> tuple[tuple[int, ...], ...]:
    """Return sizes for each dim, such that they make at most `most` combinations.

    `ties[d]` is the number of tensors' dims that the d-th one represents (1 by default): each of
    them multiplies. A dim with several sizes gets at least `least`, for which `most` must be
    enough.
    """
    dims = len(next(iter(points)))
    ties = ties or (1,) * dims
    known = [len({point[d] for point in points}) for d in range(dims)]
    grids = [_grid(points, counts) for counts in _counts(known, ties, most, least)]
    return min(grids, key=lambda grid: grid_work(points, grid))


def _counts(
    known: Sequence[int], ties: Sequence[int], most: int, least: int
) -> list[tuple[int, ...]]:
    """Return the numbers of sizes per dim that fit, but would not with one size more."""

    def fits(counts: Sequence[int]) -> bool:
        return math.prod(n**t for n, t in zip(counts, ties, strict=True)) <= most

    def more(counts: tuple[int, ...], d: int) -> tuple[int, ...]:
        return (*counts[:d], counts[d] + 1, *counts[d + 1 :])

    choices = [range(min(least, n), min(n, most) + 1) for n in known]
    fitting = [counts for counts in itertools.product(*choices) if fits(counts)]
    return [
        counts
        for counts in fitting
        if not any(n < known[d] and fits(more(counts, d)) for d, n in enumerate(counts))
    ]


def _grid(points: Mapping[Point, float], counts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the grid that improves each dim's sizes in turns while the others are fixed."""
    grid = [tuple(sorted({point[d] for point in points})) for d in range(len(counts))]
    work = inf
    while True:
        for d, count in enumerate(counts):
            weights: dict[int, float] = {}
            for point, weight in points.items():
                others = math.prod(padded(point[o], grid[o]) for o in range(len(grid)) if o != d)
                weights[point[d]] = weights.get(point[d], 0.0) + weight * others
            grid[d] = best_ladder(weights, count)
        before, work = work, grid_work(points, grid)
        if work >= before:
            return tuple(grid)


def grid_work(points: Mapping[Point, float], grid: Sequence[Sequence[int]]) -> float:
    """Return the work of all points, each size padded to its dim's next one."""
    return sum(weight * math.prod(map(padded, point, grid)) for point, weight in points.items())


# ---- any combinations -----------------------------------------------------------------------


def _rounded(points: Mapping[Point, float]) -> dict[Point, float]:
    """Return the points, rounded up to few enough distinct ones."""
    if len(points) <= _POINTS:
        return dict(points)
    dims = len(next(iter(points)))
    levels = max(2, int(_POINTS ** (1 / dims)))
    ladders = [
        best_ladder(_total((p[d], w) for p, w in points.items()), levels) for d in range(dims)
    ]
    return _total((tuple(map(padded, p, ladders)), w) for p, w in points.items())


def _total(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    found: dict[_Key, float] = {}
    for key, weight in pairs:
        found[key] = found.get(key, 0.0) + weight
    return found


def _merged(points: Mapping[Point, float], most: int) -> tuple[Point, ...]:
    """Merge groups of points, the cheapest pair first, until `most` are left."""
    corners = np.array(list(points), dtype=np.float64)
    weights = _weights(points)
    costs = corners.prod(1) * weights
    while len(corners) > most:
        joined = np.maximum(corners[:, None], corners[None])
        extra = joined.prod(2) * (weights[:, None] + weights[None]) - costs[:, None] - costs[None]
        np.fill_diagonal(extra, inf)
        a, b = (int(i) for i in np.unravel_index(int(extra.argmin()), extra.shape))
        corners[a] = joined[a, b]
        weights[a] += weights[b]
        costs[a] = corners[a].prod() * weights[a]
        corners, weights, costs = (np.delete(x, b, 0) for x in (corners, weights, costs))
    return tuple(tuple(int(size) for size in corner) for corner in corners)


def _improved(points: Mapping[Point, float], gears: Sequence[Point]) -> list[Point]:
    """Change one size of one gear at a time, as long as that reduces the work."""
    weights = _weights(points)
    dims = len(gears[0])
    sizes = [sorted({point[d] for point in points}) for d in range(dims)]
    found = _tightened(points, list(gears))
    best = work_of(points, found)
    while True:
        before = best
        for place, d in itertools.product(range(len(found)), range(dims)):
            others = _works(points, [*found[:place], *found[place + 1 :]]).min(1, initial=inf)
            for size in _levels(sizes[d]):
                gear = (*found[place][:d], size, *found[place][d + 1 :])
                work = float(np.minimum(others, _works(points, [gear])[:, 0]) @ weights)
                if work < best * (1 - 1e-12):
                    best, found[place] = work, gear
        found = _tightened(points, found)
        best = work_of(points, found)
        if best >= before * (1 - 1e-12):
            return list(dict.fromkeys(found))


def _levels(sizes: Sequence[int]) -> Sequence[int]:
    """Return a few dozen of the sizes, evenly spaced, the largest among them."""
    step = -(-len(sizes) // 48)
    return sizes[::-1][::step]


def _tightened(points: Mapping[Point, float], gears: Sequence[Point]) -> list[Point]:
    """Shrink each gear to the points that it serves; gears that serve none are unchanged."""
    serving = _works(points, gears).argmin(1)
    found = list(gears)
    for place in range(len(gears)):
        served = [point for point, g in zip(points, serving, strict=True) if g == place]
        if served:
            found[place] = tuple(map(max, *served)) if len(served) > 1 else served[0]
    return found


def _works(points: Mapping[Point, float], gears: Sequence[Point]) -> Floats:
    """Return the work of each point (row) in each gear (column); inf where it does not fit."""
    if not gears:
        return np.empty((len(points), 0))
    calls, rows = (np.array(list(corners), dtype=np.float64) for corners in (points, gears))
    fits = (calls[:, None] <= rows[None]).all(2)
    return np.where(fits, rows.prod(1), inf)


def _weights(points: Mapping[Point, float]) -> Floats:
    return np.array(list(points.values()), dtype=np.float64)
