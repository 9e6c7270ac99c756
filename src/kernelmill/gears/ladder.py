"""The best gears of one dim: exact, by dynamic programming."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf


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
