"""Random programs of kernels as super kernels give what they give launch by launch, for teams of 1
to 8 threads; and their waits are right on paper, and none of them can be left out."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill import codegen
from kernelmill.config.super_kernel_marks import UNMARKED, read_mark
from kernelmill.core.dim import evaluate
from kernelmill.core.target.machine import host
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import parse_kernel
from kernelmill.plan.arena import ArenaBuffer, assign
from kernelmill.plan.ir import BufferSpec, KernelRef, Launch, Plan, TensorResult, sub_launches
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.plan.verifier import verify_plan
from kernelmill.runtime.program import load
from kernelmill.superkernel.driver import driver_ir
from kernelmill.superkernel.footprint import Footprints
from kernelmill.superkernel.launch_fusion import form
from tests.unit.runtime.kernels import buffer, tensor_input
from tests.unit.superkernel.checker import uncovered

pytestmark = pytest.mark.usefixtures("threads_as_before")

SIZE = 48
TASKS = (1, 2, 3, 8, 48)


@cache
def kernel(tasks: int, turned: bool) -> Kernel:
    """out[i] = x[i] + y[i], or y from its other end, in so many tasks."""
    rows = SIZE // tasks
    other = f"{SIZE - 1} - i" if turned else "i"
    text = f"""kernel k{tasks}{"t" if turned else "s"}(
      x: f32[{SIZE}] in, y: f32[{SIZE}] in, out: f32[{SIZE}] out) tasks({tasks}) type "K" {{
      for i = task * {rows} to task * {rows} + {rows} step 1 {{
        %a: f32 = load x[i]
        %b: f32 = load y[{other}]
        %c: f32 = add(%a, %b)
        store out[i], %c
      }}
    }}"""
    return parse_kernel(text)


@cache
def image(tasks: int, turned: bool) -> bytes:
    return codegen.compile_kernel(kernel(tasks, turned), host().isa)


Step = tuple[int, bool, int, int, str]
"""Tasks, turned, two operands (numbers of values), stream."""


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Step], list[int]]:
    steps: list[Step] = []
    for number in range(draw(st.integers(2, 14))):
        values = st.integers(max(0, number - draw(st.integers(0, 4))), number + 1)
        steps.append(
            (draw(st.sampled_from(TASKS)), draw(st.booleans()), draw(values), draw(values),
             draw(st.sampled_from(["", "", "#a,0", "#b,1"])))
        )  # fmt: skip
    made = st.integers(2, len(steps) + 1)
    return steps, draw(st.lists(made, min_size=1, max_size=3))


def plan_of(steps: list[Step], results: list[int], options: str, marked: bool = True) -> Plan:
    last = {v: i for i, step in enumerate(steps) for v in (step[2], step[3], i + 2)}
    inner = [i for i in range(len(steps)) if i + 2 not in results]
    arena = assign([ArenaBuffer(SIZE * 4, i, last[i + 2]) for i in inner])
    offsets = dict(zip(inner, arena.offsets, strict=True))
    buffers: list[BufferSpec] = [buffer("input", SIZE, source=n) for n in range(2)]
    launches: list[Launch] = []
    for i, (tasks, turned, x, y, stream) in enumerate(steps):
        inside = i in offsets
        buffers.append(
            buffer("arena" if inside else "tensor", SIZE, offset=offsets[i] if inside else 0)
        )
        text = f"sp{'?' + options if options else ''}{stream}"
        mark = read_mark(text) if marked else UNMARKED
        name = kernel(tasks, turned).name
        launches.append(Launch(name, (x, y, i + 2), (), tasks, 0, 5000, mark))
    refs = {kernel(step[0], step[1]).name: step for step in steps}
    return Plan(
        "random", (), (tensor_input("x", SIZE), tensor_input("y", SIZE)), tuple(buffers), (),
        tuple(launches), tuple(TensorResult(n) for n in results),
        tuple(KernelRef(name, "K", name) for name in refs), arena.bytes,
    )  # fmt: skip


def kernels_of(steps: list[Step]) -> dict[str, Kernel]:
    return {kernel(s[0], s[1]).name: kernel(s[0], s[1]) for s in steps}


OPTIONS = st.sampled_from(["", "stream-fusion=1", "debug-sync-all=1"])


@settings(max_examples=40, deadline=None)
@given(programs(), OPTIONS, st.integers(1, 6))
def test_same_results(program: tuple[list[Step], list[int]], options: str, expected: int) -> None:
    steps, results = program
    plan = plan_of(steps, results, options)
    objects = {kernel(s[0], s[1]).name: image(s[0], s[1]) for s in steps}
    formed = form(plan, kernels_of(steps), threads=expected).plan
    verify_plan(formed)
    assert parse_plan(print_plan(formed)) == formed
    (one,) = formed.supers
    driver = driver_ir(one, list(sub_launches(formed, one)), codegen.spin_hint(host().isa))
    whole = load(formed, {**objects, one.name: codegen.emit(driver, host().isa)})
    serial = load(plan, objects)
    values = torch.randn(2, SIZE)
    torch.set_num_threads(1)
    wanted = serial(*values)
    # A frame has room for as many threads as there were at its first call.
    for threads in range(8, 0, -1):
        torch.set_num_threads(threads)
        for _ in range(5):
            got = whole(*values)
            assert all(map(torch.equal, got, wanted))


@settings(max_examples=60, deadline=None)
@given(programs(), OPTIONS, st.integers(1, 6), st.data())
def test_waits_on_paper(
    program: tuple[list[Step], list[int]], options: str, expected: int, data: st.DataObject
) -> None:
    steps, results = program
    kernels = kernels_of(steps)
    plan = form(plan_of(steps, results, options), kernels, threads=expected).plan
    (one,) = plan.supers
    launches = list(sub_launches(plan, one))
    touches = list(map(Footprints(plan, kernels).of, launches))
    tasks = [evaluate(launch.tasks, {}) for launch in launches]
    teams = range(1, 9)
    assert not any(uncovered(tasks, one.parts, one.waits, touches, team) for team in teams)
    # Of a team with more threads than tasks, those with a task may know more than all of them do.
    busy = [
        count == SIZE or part[0] == part[1] for count, part in zip(tasks, one.parts, strict=True)
    ]
    pairs = [(n, m) for n, waits in enumerate(one.waits) for m in waits if busy[n] and busy[m]]
    if pairs and options != "debug-sync-all=1":
        number, left_out = data.draw(st.sampled_from(pairs))
        rest = tuple(other for other in one.waits[number] if other != left_out)
        broken = replace(one, waits=(*one.waits[:number], rest, *one.waits[number + 1 :]))
        # Teams large enough that every task has a thread of its own.
        teams = (*teams, 48, 64)
        assert any(uncovered(tasks, one.parts, broken.waits, touches, team) for team in teams)
