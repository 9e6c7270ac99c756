"""Waits stand where data crosses threads, and nowhere else; the checker knows both."""

from kernelmill.plan.ir import WHOLE_TEAM, Part, thread_range
from kernelmill.superkernel.footprint import Footprint, SubKernel, conflicting, waits_of
from tests.unit.superkernel.checker import uncovered

HALVES: tuple[Part, Part] = ((0, 32), (32, 64))
ONE: Part = (0, 0)


def rows(place: int, writes: bool, bytes: int = 64) -> Footprint:
    """Task i touches its own row of what begins at `place`."""
    return Footprint(("arena", 0), writes, bytes, place, place + bytes)


def all_of(place: int, writes: bool, size: int = 512) -> Footprint:
    return Footprint(("arena", 0), writes, 0, place, place + size)


def checked(kernels: list[SubKernel]) -> tuple[tuple[int, ...], ...]:
    """The waits, which hold for teams of 1 to 9 and each of which is needed by some team."""
    waits = waits_of(kernels)
    columns = [k.tasks for k in kernels], [k.part for k in kernels]
    touches = [k.touches for k in kernels]
    teams = range(1, 10)
    assert not any(uncovered(*columns, waits, touches, team) for team in teams)
    for number, awaited in enumerate(waits):
        for one in awaited:
            fewer = list(waits)
            fewer[number] = tuple(w for w in awaited if w != one)
            assert any(uncovered(*columns, fewer, touches, team) for team in teams)
    return waits


def test_rows_that_stay_with_their_thread_need_no_wait() -> None:
    first = SubKernel(8, WHOLE_TEAM, (rows(0, True),))
    second = SubKernel(8, WHOLE_TEAM, (rows(0, False), rows(512, True)))
    assert conflicting(first, second)
    assert checked([first, second]) == ((), ())


def test_another_split_waits() -> None:
    first = SubKernel(8, WHOLE_TEAM, (rows(0, True),))
    second = SubKernel(4, WHOLE_TEAM, (rows(0, False, 128), rows(512, True)))
    assert checked([first, second]) == ((), (0,))


def test_reading_everything_waits_and_so_does_writing_over_it() -> None:
    first = SubKernel(8, WHOLE_TEAM, (rows(0, True),))
    second = SubKernel(8, WHOLE_TEAM, (all_of(0, False), rows(512, True)))
    third = SubKernel(8, WHOLE_TEAM, (rows(512, False), rows(0, True)))
    assert checked([first, second, third]) == ((), (0,), (1,))


def test_what_one_wait_covers_is_not_waited_for_again() -> None:
    first = SubKernel(8, WHOLE_TEAM, (rows(0, True),))
    second = SubKernel(8, WHOLE_TEAM, (all_of(0, False), rows(512, True)))
    third = SubKernel(8, WHOLE_TEAM, (all_of(0, False), rows(1024, True)))
    assert checked([first, second, third]) == ((), (0,), ())


def test_one_thread_needs_nothing() -> None:
    kernels = [SubKernel(1, ONE, (all_of(0, True),)) for _ in range(3)]
    assert checked(kernels) == ((), (), ())


def test_branches_meet_where_they_join() -> None:
    left = [SubKernel(4, HALVES[0], (all_of(p, False), all_of(p + 512, True))) for p in (0, 512)]
    right = [
        SubKernel(4, HALVES[1], (all_of(p, False), all_of(p + 512, True))) for p in (4096, 4608)
    ]
    join = SubKernel(8, WHOLE_TEAM, (all_of(1024, False), all_of(5120, False), rows(9000, True)))
    waits = checked([*left, *right, join])
    assert waits == ((), (0,), (), (2,), (1, 3))


def test_parts_are_never_empty_and_cover_the_team() -> None:
    for threads in range(1, 20):
        assert list(thread_range(WHOLE_TEAM, threads)) == list(range(threads))
        for part in (*HALVES, ONE, (63, 64), (10, 20)):
            members = thread_range(part, threads)
            assert members and members[0] >= 0 and members[-1] < threads


def test_a_thread_of_those_waited_for_is_not_waited_for_apart() -> None:
    first = SubKernel(1, ONE, (all_of(0, True),))
    second = SubKernel(2, HALVES[0], (rows(512, True),))
    third = SubKernel(2, WHOLE_TEAM, (all_of(0, False), all_of(512, False), rows(1024, True)))
    assert checked([first, second, third]) == ((), (), (1,))
