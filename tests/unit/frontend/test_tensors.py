"""What strides say about elements in one place."""

from __future__ import annotations

import itertools

import pytest

from kernelmill.frontend.context import overlaps


@pytest.mark.parametrize("sizes", [(5, 3), (2, 4), (3, 1), (2, 2, 3)])
def test_strides_overlap_when_two_elements_are_in_one_place(sizes: tuple[int, ...]) -> None:
    for strides in itertools.product(range(8), repeat=len(sizes)):
        places = [
            sum(i * s for i, s in zip(index, strides, strict=True))
            for index in itertools.product(*map(range, sizes))
        ]
        assert overlaps(sizes, strides) == (len(set(places)) < len(places)), (sizes, strides)


def test_nothing_overlaps_where_there_are_no_elements() -> None:
    assert not overlaps((0, 3), (0, 0))
