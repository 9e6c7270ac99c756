"""Compiled convolutions against eager ones: strides, padding, dilation, groups, few sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelmill.core.target.machine import profile
from kernelmill.lower.templates.convolution.planar.direct_window import DirectWindow
from kernelmill.lower.templates.convolution.planar.layout import PanelWindow, Schedule
from kernelmill.lower.templates.matmul.blocked_tiles import InDepthBlocks
from tests.unit.lower.templates.convolution.planar.convolution import Convolution

CASES = [
    Convolution(1, 3, (9, 11), 20, (3, 3), padding=(1, 1)),
    Convolution(2, 5, (7, 7), 40, (3, 3), padding=(1, 1)),
    Convolution(1, 4, (20, 70), 9, (5, 3), padding=(2, 1)),
    Convolution(1, 3, (33, 35), 16, (7, 7), (2, 2), (3, 3)),
    Convolution(1, 6, (14, 14), 24, (1, 1), (2, 2)),
    Convolution(1, 6, (15, 40), 24, (2, 2), (2, 2)),
    Convolution(1, 3, (16, 16), 10, (4, 4), (4, 4)),
    Convolution(1, 3, (20, 23), 10, (3, 2), (3, 3), (2, 1)),
    Convolution(1, 4, (20, 20), 8, (3, 3), (1, 1), (2, 2), (2, 2)),
    Convolution(1, 4, (20, 20), 8, (3, 3), (2, 2), (4, 4), (2, 3)),
    Convolution(1, 4, (20, 20), 8, (3, 3), (2, 3), (0, 5), (4, 3)),
    Convolution(1, 4, (1, 50), 8, (1, 9), (1, 1), (0, 4)),
    Convolution(1, 4, (1, 50), 8, (1, 9), (1, 2), (0, 4)),
    Convolution(1, 4, (30, 1), 8, (3, 1), (1, 1), (2, 0)),
    Convolution(1, 2, (5, 5), 8, (5, 5)),
    Convolution(1, 2, (3, 3), 8, (3, 3), padding=(5, 5)),
    Convolution(1, 2, (2, 17), 8, (1, 1), padding=(3, 3)),
]

FEW_SUMS = [
    Convolution(2, 1, (14, 14), 1, (3, 3), padding=(1, 1), groups=5),
    Convolution(1, 1, (56, 56), 1, (7, 7), padding=(3, 3), groups=3),
    Convolution(1, 1, (30, 31), 1, (3, 3), (2, 2), (1, 1), groups=4),
    Convolution(1, 1, (30, 31), 2, (5, 5), (2, 1), (2, 2), groups=3),
    Convolution(1, 2, (17, 40), 1, (3, 3), padding=(1, 1), dilation=(2, 2), groups=2),
    Convolution(1, 20, (12, 12), 4, (3, 3), padding=(1, 1)),
    Convolution(1, 1, (7, 7), 1, (7, 7), padding=(3, 3), groups=6),
    Convolution(1, 3, (40, 40), 1, (9, 9), padding=(4, 4)),
]


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("case", CASES + FEW_SUMS)
def test_results(case: Convolution, offset: bool) -> None:
    replace(case, offset=offset).check()


@pytest.mark.parametrize("case", [*FEW_SUMS, CASES[0], CASES[5]])
def test_weights_where_they_lie(case: Convolution) -> None:
    replace(case, packed=False).check()


@pytest.mark.parametrize("case", [CASES[i] for i in (0, 5, 8, 15)] + FEW_SUMS[2:3])
def test_every_access_is_inside(case: Convolution) -> None:
    torch.testing.assert_close(case.interpreted(), case.expected(), rtol=0, atol=0)


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("case", [CASES[i] for i in (0, 3, 7)] + FEW_SUMS[:3])
def test_narrower_vectors(case: Convolution, level: int) -> None:
    replace(case, target=profile(f"x86-64-v{level}")).check()


def blocked(**changes: int | InDepthBlocks) -> Callable[[Schedule], Schedule]:
    """Plan as usual, but the product of panels with these fields."""

    def change(schedule: Schedule) -> Schedule:
        assert isinstance(schedule, PanelWindow)
        return PanelWindow(replace(schedule.blocked, **changes))  # pyright: ignore[reportArgumentType]

    return change


@pytest.mark.parametrize("block", [1, 2, 3])
def test_channels_taken_in_blocks(block: int) -> None:
    for case in (CASES[1], CASES[5], CASES[8]):
        replace(case, adjust=blocked(sums=InDepthBlocks(block))).check()


@pytest.mark.parametrize("column_tiles", [1, 2, 3])
def test_any_split_into_tasks(column_tiles: int) -> None:
    for case in (CASES[0], CASES[2], CASES[3]):
        replace(case, adjust=blocked(row_tiles=1, column_tiles=column_tiles)).check()


def test_few_sums_are_made_in_the_padded_tile() -> None:
    for case in FEW_SUMS[:-1]:
        assert isinstance(case.schedule, DirectWindow)
    for case in (FEW_SUMS[-1], CASES[0]):
        assert not isinstance(case.schedule, DirectWindow)


def test_rows_of_a_task_that_are_not_summed_evenly_are_refused() -> None:
    schedule = FEW_SUMS[0].schedule
    assert isinstance(schedule, DirectWindow)
    with pytest.raises(ValueError, match="at a time"):
        replace(schedule, rows=6, together=4)


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(7, 40), st.integers(7, 40)),
    outputs=st.sampled_from([1, 3, 8, 13]),
    kernel=pairs,
    stride=pairs,
    padding=pairs,
    dilation=pairs,
    groups=st.sampled_from([1, 2]),
)
# Weights that are read in vectors along k, where a multiply-add takes a lane.
@example(
    size=(7, 7), outputs=8, kernel=(1, 1), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=2
)  # fmt: skip
def test_random_windows(
    size: tuple[int, int],
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    Convolution(1, 2, size, outputs, kernel, stride, padding, dilation, groups).check()
