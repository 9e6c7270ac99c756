"""Random programs of kernels give the same results with launches side by side, for teams of 1 to 8
threads; and no two tasks that may run at the same time meet in memory."""

from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings

from kernelmill.core.dim import evaluate
from kernelmill.core.target.machine import host
from kernelmill.plan.ir import Launch, Order, Plan
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.plan.verifier import verify_plan
from kernelmill.runtime.program import load
from kernelmill.superkernel.footprint import Footprints
from kernelmill.superkernel.side_by_side import run_side_by_side
from tests.properties.test_super_kernels import (
    Step,
    image,
    kernel,
    kernels_of,
    plan_of,
    programs,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("threads_as_before")


def plans(program: tuple[list[Step], list[int]]) -> tuple[Plan, Plan]:
    """A program launch by launch, and side by side."""
    steps, results = program
    plan = plan_of(steps, results, "", marked=False)
    return plan, run_side_by_side(plan, kernels_of(steps), host())


@settings(max_examples=40, deadline=None)
@given(programs())
def test_same_results(program: tuple[list[Step], list[int]]) -> None:
    plan, beside = plans(program)
    verify_plan(beside)
    assert parse_plan(print_plan(beside)) == beside
    objects = {kernel(s[0], s[1]).name: image(s[0], s[1]) for s in program[0]}
    values = torch.randn(2, 48)
    torch.set_num_threads(1)
    wanted = load(plan, objects)(*values)
    found = load(beside, objects)
    for threads in range(8, 0, -1):
        torch.set_num_threads(threads)
        for _ in range(5):
            assert all(map(torch.equal, found(*values), wanted))


@settings(max_examples=150, deadline=None)
@given(programs())
def test_tasks_side_by_side_on_paper(program: tuple[list[Step], list[int]]) -> None:
    _, beside = plans(program)
    known = Footprints(beside, kernels_of(program[0]))
    for group in groups_of(beside):
        touched = [known.of(launch) for launch in group]
        for (n, a), (m, b) in combinations(enumerate(group), 2):
            follows = all(step.order is Order.BEHIND for step in group[n + 1 : m + 1])
            meeting = [
                (i, j)
                for x, y in product(touched[n], touched[m])
                if x.memory == y.memory and (x.writes or y.writes)
                for i, j in product(range(evaluate(a.tasks, {})), range(evaluate(b.tasks, {})))
                if overlap(x.of_tasks(i, i + 1), y.of_tasks(j, j + 1))
            ]
            # The same task of one that runs behind the other comes after it, on the same thread.
            assert all(follows and i == j for i, j in meeting), (a, b, meeting)


def groups_of(plan: Plan) -> list[list[Launch]]:
    found: list[list[Launch]] = []
    for step in plan.steps:
        assert isinstance(step, Launch)
        if step.order is Order.AFTER:
            found.append([])
        found[-1].append(step)
    return found


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
