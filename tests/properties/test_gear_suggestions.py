"""Suggested gears against all choices there are, on small cases."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.gears.cover import best_grid, best_ladder, best_rows, grid_work, padded, work_of

SIZES = st.dictionaries(st.integers(0, 60), st.integers(1, 50), min_size=1, max_size=9)
POINT = st.tuples(st.integers(1, 12), st.integers(1, 12))
POINTS = st.dictionaries(POINT, st.integers(1, 20), min_size=1, max_size=9)


def _ladder_work(sizes: dict[int, int], ladder: tuple[int, ...]) -> int:
    return sum(count * padded(size, ladder) for size, count in sizes.items())


@settings(max_examples=300)
@given(SIZES, st.integers(1, 6))
def test_one_dim_is_optimal(sizes: dict[int, int], most: int) -> None:
    ladder = best_ladder(sizes, most)
    others = sorted(set(sizes) - {max(sizes)})
    chosen = (
        (*rest, max(sizes))
        for count in range(min(most, len(sizes)))
        for rest in itertools.combinations(others, count)
    )
    assert len(ladder) <= most and ladder == tuple(sorted(set(ladder))) and set(ladder) <= {*sizes}
    assert _ladder_work(sizes, ladder) == min(_ladder_work(sizes, c) for c in chosen)


@settings(max_examples=150)
@given(POINTS, st.integers(1, 6))
def test_rows_hold_every_point_and_waste_no_more_than_a_grid(
    points: dict[tuple[int, int], int], most: int
) -> None:
    rows, grid = best_rows(points, most), best_grid(points, most)
    work = work_of(points, rows)
    assert len(rows) <= most and math.prod(map(len, grid)) <= most
    assert math.isfinite(work)
    assert work <= grid_work(points, grid) * (1 + 1e-9)
    assert work >= sum(count * math.prod(point) for point, count in points.items())
    if most >= len(points):
        assert sorted(rows) == sorted(points)


@settings(max_examples=60)
@given(
    st.dictionaries(st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(1, 9), min_size=1),
    st.integers(1, 3),
)
def test_rows_are_near_the_best_there_are(points: dict[tuple[int, int], int], most: int) -> None:
    corners = itertools.product({p[0] for p in points}, {p[1] for p in points})
    best = min(
        work_of(points, chosen)
        for chosen in itertools.combinations([*corners], min(most, len(points)))
    )
    assert work_of(points, best_rows(points, most)) <= 1.2 * best
