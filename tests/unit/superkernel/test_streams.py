"""Branches get parts of the team where that is estimated to be faster."""

from kernelmill.core.target.machine import PROFILES
from kernelmill.plan.ir import WHOLE_TEAM
from kernelmill.superkernel.side_by_side import (
    branch_parts,
    branches_of,
    narrowed,
    saves,
    tagged_parts,
)

USUAL = PROFILES["x86-64-v4"]
DIAMOND = [frozenset[int](), frozenset((0,)), frozenset((0,)), frozenset((1, 2))]


def test_branches_lie_between_the_trunk() -> None:
    assert branches_of(DIAMOND) == [[[1], [2]]]
    chain = [frozenset[int](), frozenset((0,)), frozenset((1,))]
    assert branches_of(chain) == []
    towers = [frozenset[int](), frozenset((0,)), frozenset[int](), frozenset((2,))]
    assert branches_of(towers) == [[[0, 1], [2, 3]]]


def test_branches_that_cannot_fill_the_team_run_side_by_side() -> None:
    parts = branch_parts([8, 1, 1, 8], [9000] * 4, DIAMOND, 2, USUAL)
    assert parts == (WHOLE_TEAM, (0, 32), (32, 64), WHOLE_TEAM)
    assert branch_parts([8, 1, 1, 8], [9000] * 4, DIAMOND, 1, USUAL) == (WHOLE_TEAM,) * 4


def test_threads_go_by_cost() -> None:
    parts = branch_parts([8, 3, 1, 8], [9000, 30000, 10000, 9000], DIAMOND, 4, USUAL)
    assert parts[1:3] == ((0, 48), (48, 64))


def test_a_lopsided_pair_stays_together() -> None:
    assert (
        branch_parts([8, 8, 8, 8], [9000, 90000, 900, 9000], DIAMOND, 2, USUAL) == (WHOLE_TEAM,) * 4
    )


def test_tags() -> None:
    tags = ["", "a", "b", "c", ""]
    parts = tagged_parts(tags, {}, [1000] * 5, 4, 2)
    assert parts[0] == parts[4] == WHOLE_TEAM
    assert parts[2] == parts[3] != parts[1]
    low, high = tagged_parts(["a", "b"], {"b": 3}, [1000, 1000], 4, 2)
    assert (low, high) == ((0, 16), (16, 64))
    assert tagged_parts(["a", "a"], {}, [1, 1], 4, 2) == (WHOLE_TEAM,) * 2


def test_small_work_is_left_to_one_thread() -> None:
    assert narrowed((32, 64), 8, 100, USUAL) == narrowed((32, 64), 1, 10**6, USUAL) == (32, 32)
    assert narrowed((32, 64), 8, 10**6, USUAL) == (32, 64)


def test_what_saves() -> None:
    whole = [WHOLE_TEAM] * 3
    assert saves([8] * 3, [9000] * 3, whole, 2, USUAL)
    assert not saves([1] * 3, [9000] * 3, [(0, 0)] * 3, 2, USUAL)
