"""Which launches run beside each other, and which behind another one's tasks."""

from dataclasses import replace

import pytest

from kernelmill.config.super_kernel_marks import read_mark
from kernelmill.core.dim import sym
from kernelmill.core.target.machine import host
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import parse_kernel
from kernelmill.plan.ir import (
    MOST_TOGETHER,
    AtenCall,
    KernelRef,
    Launch,
    Order,
    Plan,
    Step,
    TensorResult,
)  # fmt: skip
from kernelmill.superkernel.launch_fusion import form
from kernelmill.superkernel.side_by_side import run_side_by_side
from tests.unit.runtime.kernels import buffer, tensor_input

SIZE = 32
WORK = host().region_work_ns


def kernel(name: str, tasks: int = 4, index: str = "i", over: str = "") -> Kernel:
    """out[i] = x[i] + y[index]."""
    return parse_kernel(f"""kernel {name}(x: f32[{SIZE}] in, y: f32[{SIZE}] in,
      out: f32[{SIZE}] out{over}) tasks({tasks}) type "K" {{
      for i = task * {SIZE // tasks} to task * {SIZE // tasks} + {SIZE // tasks} step 1 {{
        %a: f32 = load x[i]
        %b: f32 = load y[{index}]
        %c: f32 = add(%a, %b)
        store out[i], %c
      }}
    }}""")


KERNELS = {
    each.name: each
    for each in (
        kernel("own"),
        kernel("eight", 8),
        kernel("turned", index=f"{SIZE - 1} - i"),
        kernel("in_place", over=" over(x)"),
    )
}


def launch(name: str, *buffers: int, work: int = WORK, tasks: int = 0) -> Launch:
    return Launch(name, buffers, (), tasks or int(str(KERNELS[name].tasks)), 0, work)


def plan(*steps: Step, updated: bool = False) -> Plan:
    """Buffers 0 and 1 are arguments, 2 to 9 in the arena one behind the other, 10 a result."""
    inputs = tuple(tensor_input(name, SIZE, updated=updated) for name in "xy")
    buffers = [buffer("input", SIZE, source=n) for n in range(2)]
    buffers += [buffer("arena", SIZE, offset=n * SIZE * 4) for n in range(8)]
    buffers.append(buffer("tensor", SIZE))
    return Plan(
        "p", (), inputs, tuple(buffers), (), steps, (TensorResult(10),),
        tuple(KernelRef(name, "K", name) for name in KERNELS), 8 * SIZE * 4,
    )  # fmt: skip


def ordered(*steps: Step, updated: bool = False) -> Plan:
    return run_side_by_side(plan(*steps, updated=updated), KERNELS, host())


def orders(made: Plan) -> list[tuple[int, str]]:
    """The buffer that each step writes, and its order."""
    return [
        (step.buffers[-1], str(step.order)) if isinstance(step, Launch) else (-1, "aten")
        for step in made.steps
    ]


def test_launches_that_need_nothing_of_each_other_are_side_by_side() -> None:
    made = ordered(
        launch("own", 0, 1, 2),
        launch("eight", 0, 0, 3),
        launch("own", 2, 2, 4, work=100),  # short, and in between
        launch("turned", 0, 1, 5),
        launch("own", 3, 5, 10),
    )
    assert orders(made) == [
        (2, "after"), (3, "beside"), (5, "beside"), (4, "after"), (10, "after"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("works", "second"),
    [
        ((WORK // 3, WORK), "beside"),
        ((WORK, WORK // 3), "beside"),
        ((WORK // 2, WORK // 2), "beside"),  # worth several threads together
        ((WORK // 3, WORK // 3), "after"),
        ((WORK, WORK // 5), "after"),
    ],
)
def test_short_ones_run_beside_others_that_are_worth_several_threads(
    works: tuple[int, int], second: str
) -> None:
    steps = [launch("own", 0, 1, 2, work=works[0]), launch("own", 0, 0, 10, work=works[1])]
    assert orders(ordered(*steps)) == [(2, "after"), (10, second)]


def test_what_needs_only_the_same_task_of_another_runs_behind_it() -> None:
    made = ordered(launch("own", 0, 1, 2), launch("own", 1, 2, 10))
    assert orders(made) == [(2, "after"), (10, "behind")]
    # And what needs the second one's, or the first one's, behind both.
    made = ordered(launch("own", 0, 1, 2), launch("own", 1, 2, 3), launch("own", 2, 3, 10))
    assert [order for _, order in orders(made)] == ["after", "behind", "behind"]


@pytest.mark.parametrize(
    "second",
    [
        launch("turned", 1, 2, 10),  # reads what other tasks write
        launch("eight", 2, 2, 10),  # has other tasks
        launch("own", 1, 2, 10, work=100),  # one thread is enough for it
        launch("own", 1, 1, 10, work=10**9),  # waiting is nothing beside what it takes
        launch("own", 0, 1, 1),  # writes to an argument
        replace(launch("own", 0, 1, 10), mark=read_mark("range")),
    ],
)
def test_what_comes_after_all_tasks_before_it(second: Launch) -> None:
    before = plan(launch("own", 0, 1, 2), second)
    assert run_side_by_side(before, KERNELS, host()) == before


def test_behind_the_first_of_two_is_nothing() -> None:
    """Its task would have to run before tasks of the second, which may be another thread's."""
    made = ordered(
        launch("own", 0, 1, 2), launch("own", 0, 0, 3), launch("own", 1, 2, 4),
        launch("own", 3, 4, 10),
    )  # fmt: skip
    assert orders(made)[:3] == [(2, "after"), (3, "beside"), (4, "after")]


def test_nothing_passes_what_it_has_to_do_with() -> None:
    short = launch("own", 2, 2, 4, work=100)
    made = ordered(launch("own", 0, 1, 2), short, launch("own", 4, 4, 10))
    assert orders(made) == [(2, "after"), (4, "after"), (10, "after")]
    # A short launch writes to an argument: others may be the same memory.
    writes = launch("own", 2, 2, 0, work=100)
    made = ordered(launch("own", 0, 1, 2), writes, launch("own", 1, 1, 10), updated=True)
    assert orders(made) == [(2, "after"), (0, "after"), (10, "after")]


def test_a_call_of_torch_is_not_passed() -> None:
    call = AtenCall("aten.relu_.default", (("tensor", 1),), (), (-1,))
    steps = launch("own", 0, 0, 2), call, launch("own", 0, 1, 10)
    assert ordered(*steps) == plan(*steps)


def test_no_more_than_there_is_room_for() -> None:
    made = ordered(*(launch("own", 0, 1, n) for n in range(2, 11)))
    assert [order for _, order in orders(made)].count("beside") == MOST_TOGETHER - 1
    assert orders(made)[MOST_TOGETHER][1] == "after"


def test_what_is_alive_at_the_same_time_lies_apart() -> None:
    """The second launch's result had the place of what the first one alone reads."""
    before = plan(
        launch("own", 0, 1, 2, work=100), launch("own", 2, 2, 3), launch("own", 0, 1, 4),
        launch("own", 3, 4, 10, work=100),
    )  # fmt: skip
    place = replace(before.buffers[4], offset=before.buffers[2].offset)
    before = replace(before, buffers=(*before.buffers[:4], place, *before.buffers[5:]))
    made = run_side_by_side(before, KERNELS, host())
    assert orders(made)[1:3] == [(3, "after"), (4, "beside")]
    assert len({made.buffers[n].offset for n in (2, 3, 4)}) == 3


def test_it_still_does_where_the_branches_of_a_range_are_placed_apart() -> None:
    """The second launch reads 2 for the last time, and the third one, beside it, writes 4."""
    marks = [read_mark(f"range#{stream},0") for stream in "ab"]
    before = plan(
        launch("own", 0, 1, 2, work=100), launch("own", 2, 2, 3), launch("own", 0, 1, 4),
        *(replace(launch("own", 3, 4, 5 + n), mark=mark) for n, mark in enumerate(marks)),
        launch("own", 5, 6, 10, work=100),
    )  # fmt: skip
    made = form(run_side_by_side(before, KERNELS, host()), KERNELS, threads=2).plan
    assert orders(made)[1:3] == [(3, "after"), (4, "beside")]
    assert len(set(made.supers[0].parts)) == 2
    assert len({made.buffers[n].offset for n in (2, 3, 4)}) == 3
    assert len({made.buffers[n].offset for n in (3, 4, 5, 6)}) == 4


def test_a_place_that_is_given_to_a_result_stays_given() -> None:
    """Outside of what runs side by side; inside, others may still read it."""
    before = plan(
        launch("own", 0, 1, 2), launch("own", 0, 1, 3),
        launch("in_place", 2, 3, 4, work=100), launch("own", 3, 4, 10, work=100),
    )  # fmt: skip
    place = replace(before.buffers[4], offset=before.buffers[2].offset)
    before = replace(before, buffers=(*before.buffers[:4], place, *before.buffers[5:]))
    made = run_side_by_side(before, KERNELS, host())
    assert made.buffers[4].offset == made.buffers[2].offset != made.buffers[3].offset


def test_sizes_that_are_not_known_stay_as_they_are() -> None:
    steps = launch("own", 0, 1, 2), launch("own", 0, 1, 10)
    dynamic = replace(plan(*steps), symbols=(sym("s0", 1, 9),))
    assert run_side_by_side(dynamic, KERNELS, host()) == dynamic
    assert any(s.order is Order.BESIDE for s in ordered(*steps).steps if isinstance(s, Launch))
