"""Static plans: which threads run a launch, and how calls share them."""

import os
import select
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch

from kernelmill.core.dtype import I64
from kernelmill.core.target.machine import host
from kernelmill.plan.ir import Plan, TensorResult
from kernelmill.runtime.layout import FrameHeader
from kernelmill.runtime.memory.frames import CALLERS
from kernelmill.runtime.program import Program, load
from tests.forking import in_child
from tests.torch_settings import threads_set
from tests.unit.runtime.kernels import buffer, each_task, launch, ref, tensor_input


@pytest.fixture
def two_threads() -> Iterator[None]:
    with threads_set(2):
        yield


@pytest.fixture
def four_threads() -> Iterator[None]:
    with threads_set(4):
        yield


WHO = """
  %out = getelementptr i64, ptr %b0, i64 %task
  %who.32 = call i32 @omp_get_thread_num()
  %who = zext i32 %who.32 to i64
  store i64 %who, ptr %out
"""


def who_plan(work: int, tasks: int) -> Plan:
    return Plan(
        "who", (), (), (buffer("tensor", tasks, dtype=I64),), (),
        (launch("who", (0,), tasks, work=work),), (TensorResult(0),), (ref("who"),),
    )  # fmt: skip


def run_who(work: int, tasks: int = 100) -> list[int]:
    kernel = each_task("who", 1, WHO, "declare i32 @omp_get_thread_num()")
    (who,) = load(who_plan(work, tasks), {"who": kernel})()
    return who.tolist()


def test_heavy_launches_use_torchs_threads_and_light_ones_do_not() -> None:
    with threads_set(2):
        assert threads_met(10**6, 2) == 0b11
        assert run_who(100) == [0] * 100
        assert run_who(10**6, tasks=1) == [0]
    with threads_set(1):
        assert run_who(10**6) == [0] * 100


MEETING = """
  %who.32 = call i32 @omp_get_thread_num()
  %who = zext i32 %who.32 to i64
  %bit = shl i64 1, %who
  %before = atomicrmw or ptr %b0, i64 %bit acq_rel
  %wanted = load i64, ptr %b1
  br label %wait
wait:
  %times = phi i64 [ 0, %body ], [ %times.next, %wait ]
  %times.next = add i64 %times, 1
  call i32 @usleep(i32 100)
  %seen = load atomic i64, ptr %b0 acquire, align 8
  %all = and i64 %seen, %wanted
  %met = icmp eq i64 %all, %wanted
  %late = icmp ugt i64 %times, 100000
  %go = or i1 %met, %late
  br i1 %go, label %go.on, label %wait
go.on:
  %later = select i1 %met, i64 %wanted, i64 0
  store atomic i64 %later, ptr %b1 release, align 8
  br label %done
"""


def threads_met(work: int, wanted: int) -> int:
    """A bit for each thread that took part in 100 tasks, none of which ends before the first
    `wanted` have all begun one, or ten seconds have passed once."""
    declarations = "declare i32 @omp_get_thread_num()\ndeclare i32 @usleep(i32)"
    plan = Plan(
        "meeting", (), (tensor_input("seen", 1, dtype=I64), tensor_input("wanted", 1, dtype=I64)),
        (buffer("input", 1, dtype=I64, source=0), buffer("input", 1, dtype=I64, source=1)), (),
        (launch("meeting", (0, 1), 100, work=work),), (), (ref("meeting"),),
    )  # fmt: skip
    seen = torch.zeros(1, dtype=torch.int64)
    program = load(plan, {"meeting": each_task("meeting", 2, MEETING, declarations)})
    program(seen, torch.tensor([2**wanted - 1]))
    return int(seen)


def test_a_region_has_no_more_threads_than_its_work_keeps_busy() -> None:
    with threads_set(4):
        assert threads_met(3 * host().region_work_ns // 2, 3) == 0b111
        assert threads_met(host().region_work_ns, 2) == 0b11
        assert threads_met(10**6, 4) == 0b1111


def test_a_large_region_has_as_many_threads_as_have_more_to_do_each() -> None:
    """Half the least work of a region is enough for each of 16 threads, and twice that of 32."""
    enough = host().region_work_ns // 2
    with threads_set(40):
        assert threads_met(16 * enough, 16) == 2**16 - 1
        assert threads_met(64 * enough, 32) == 2**32 - 1


@contextmanager
def call_under_way(tasks: int) -> Iterator[Future[list[torch.Tensor]]]:
    """A call by another thread, which has begun when this is entered and ends when it is left. Each
    task says that it has begun and waits until it is answered: nobody could answer without the
    GIL's release, and it would give up after a minute."""
    (told, tell), (asked, ask) = os.pipe(), os.pipe()
    body = f"""
  %asked = alloca {{ i32, i16, i16 }}
  store {{ i32, i16, i16 }} {{ i32 {asked}, i16 {select.POLLIN}, i16 0 }}, ptr %asked
  call i64 @write(i32 {tell}, ptr %b0, i64 1)
  %answers = call i32 @poll(ptr %asked, i64 1, i32 60000)
  %number = sitofp i32 %answers to float
  store float %number, ptr %b0"""
    declarations = "declare i64 @write(i32, ptr, i64)\ndeclare i32 @poll(ptr, i64, i32)"
    kernel = each_task("waiting", 1, body, declarations)
    plan = Plan(
        "wait", (), (), (buffer("tensor", 1),), (), (launch("waiting", (0,), tasks, work=10**8),),
        (TensorResult(0),), (ref("waiting", f"waiting for {asked}"),),
    )  # fmt: skip
    program = load(plan, {"waiting": kernel})
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(program)
        assert select.select([told], [], [], 600)[0]
        yield running
        os.write(ask, b"!")
        running.result()
    for descriptor in (told, tell, asked, ask):
        os.close(descriptor)


def test_other_python_threads_run_during_a_long_call() -> None:
    with call_under_way(tasks=1) as running:
        pass
    assert running.result()[0].tolist() == [1.0]


@pytest.mark.usefixtures("four_threads")
def test_calls_at_the_same_time_share_the_threads() -> None:
    with call_under_way(tasks=2):
        assert CALLERS.value == 1
        assert threads_met(10**6, 2) == 0b11
        with call_under_way(tasks=2), call_under_way(tasks=2):
            assert threads_met(10**6, 1) == 0b1
            in_child(lambda: check(CALLERS.value == 0))  # the others' calls are not in it
    assert CALLERS.value == 0
    assert threads_met(10**6, 4) == 0b1111


@pytest.mark.usefixtures("four_threads")
def test_a_call_that_keeps_one_thread_busy_takes_none_from_others() -> None:
    with call_under_way(tasks=1):
        assert CALLERS.value == 0
        assert threads_met(10**6, 4) == 0b1111


@pytest.mark.usefixtures("four_threads")
def test_a_call_has_all_threads_from_the_launch_on_at_which_it_is_alone() -> None:
    """Its first launch waits for a bit that the test sets when the other call has ended."""
    declarations = "declare i32 @omp_get_thread_num()\ndeclare i32 @usleep(i32)"
    names = ("gate", "opened", "seen", "wanted")
    plan = Plan(
        "later", (), tuple(tensor_input(name, 1, dtype=I64) for name in names),
        tuple(buffer("input", 1, dtype=I64, source=n) for n in range(4)), (),
        (launch("meeting", (0, 1), 2, work=10**6), launch("meeting", (2, 3), 100, work=10**6)), (),
        (ref("meeting"),),
    )  # fmt: skip
    program = load(plan, {"meeting": each_task("meeting", 2, MEETING, declarations)})
    gate, opened, seen, wanted = (torch.tensor([n]) for n in (0, 0b10000, 0, 0b1111))
    with ThreadPoolExecutor(1) as pool:
        with call_under_way(tasks=2), call_under_way(tasks=2), call_under_way(tasks=2):
            later = pool.submit(program, gate, opened, seen, wanted)
            deadline = time.monotonic() + 60
            while not gate.item() and time.monotonic() < deadline:
                time.sleep(0.001)
        gate |= opened
        later.result()
    assert (gate.item(), seen.item()) == (0b10001, 0b1111)


def check(holds: bool) -> None:
    assert holds


def test_a_thread_that_never_called_torch_uses_the_number_of_threads_set() -> None:
    with threads_set(1), ThreadPoolExecutor(1) as pool:
        assert set(pool.submit(run_who, 10**6).result()) == {0}


def held_up(thread: int) -> bytes:
    """Says which thread runs each task of 200. One thread stays in its first task until others have
    done 150, or for 20 seconds."""
    body = f"""
  {WHO.strip()}
  %held = icmp eq i64 %who, {thread}
  br i1 %held, label %wait, label %count
wait:
  %times = phi i64 [ 0, %body ], [ %times.next, %wait ]
  %others = load atomic i64, ptr %b0 acquire, align 8
  %times.next = add i64 %times, 1
  call i32 @usleep(i32 1000)
  %enough = icmp uge i64 %others, 150
  %patient = icmp ult i64 %times, 20000
  %go.1 = xor i1 %patient, true
  %go = or i1 %enough, %go.1
  br i1 %go, label %once, label %wait
once:
  %never = atomicrmw add ptr %b0, i64 1000 acq_rel
  br label %done
count:
  %before = atomicrmw add ptr %b0, i64 1 acq_rel
"""
    declarations = "declare i32 @omp_get_thread_num()\ndeclare i32 @usleep(i32)"
    return each_task("held", 2, body.replace("%b0, i64 %task", "%b1, i64 %task"), declarations)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("late", [0, 1])
def test_tasks_of_a_thread_that_does_not_run_are_taken_by_another(late: int) -> None:
    """Each has 100 to begin with, of which it claims 50 at first."""
    plan = Plan(
        "held", (), (tensor_input("done", 1, dtype=I64),),
        (buffer("input", 1, dtype=I64, source=0), buffer("tensor", 200, dtype=I64)), (),
        (launch("held", (0, 1), 200, work=10**8),), (TensorResult(1),), (ref("held", f"{late}"),),
    )  # fmt: skip
    for _ in range(3):
        program = load(plan, {"held": held_up(late)})  # one that was held up may have one thread
        (who,) = program(torch.zeros(1, dtype=torch.int64))
        assert set(who.tolist()) <= {0, 1}
        assert who.tolist().count(late) <= 50


STAYS_AWAY = """
  %who = call i32 @omp_get_thread_num()
  %helps = icmp ne i32 %who, 0
  br i1 %helps, label %nap, label %wait
nap:
  %before = atomicrmw add ptr %b0, i64 1 acq_rel
  call i32 @usleep(i32 500000)
  br label %done
wait:
  %times = phi i64 [ 0, %body ], [ %times.next, %wait ]
  %times.next = add i64 %times, 1
  call i32 @usleep(i32 100)
  %others = load atomic i64, ptr %b0 acquire, align 8
  %met = icmp ne i64 %others, 0
  %late = icmp ugt i64 %times, 100000
  %go = or i1 %met, %late
  br i1 %go, label %done, label %wait
"""
"""The first thread waits until another has begun a task, which stays in it and does not run."""


@pytest.mark.usefixtures("two_threads")
def test_where_a_thread_is_held_up_calls_have_one_less_for_a_while() -> None:
    declarations = "declare i32 @omp_get_thread_num()\ndeclare i32 @usleep(i32)"
    plan = Plan(
        "away", (), (tensor_input("others", 1, dtype=I64),),
        (buffer("input", 1, dtype=I64, source=0),), (), (launch("away", (0,), 2, work=10**8),), (),
        (ref("away"),),
    )  # fmt: skip
    program = load(plan, {"away": each_task("away", 1, STAYS_AWAY, declarations)})

    def others(before: int) -> int:
        """How many tasks other threads have, `before` among them."""
        count = torch.tensor([before])
        program(count)
        return int(count)

    def is_held_up(times: int) -> bool:
        """Whether it was so often, after some more calls: on a busy machine the caller may sleep
        for longer than the thread that it waits for."""
        for _ in range(20):
            assert others(0) == 1
            if program.report()["held_up"] == times:
                return True
        return False

    assert is_held_up(1)
    assert others(100) == 100
    (frame,) = program.engine.pool.frames
    header = FrameHeader.from_address(frame.address)
    assert header.limit == 1
    header.limit = header.asked_at = 0
    assert is_held_up(2)


TURN = """
  %from = sub i64 999, %task
  %p = getelementptr i64, ptr %b0, i64 %from
  %x = load i64, ptr %p
  %y = mul i64 %x, 3
  %z = add i64 %y, %task
  %q = getelementptr i64, ptr %b1, i64 %task
  store i64 %z, ptr %q
  %number = call i32 @omp_get_thread_num()
  %rest = urem i64 %task, 97
  %odd = icmp eq i64 %rest, 0
  %late = icmp eq i32 %number, 1
  %waits = and i1 %odd, %late
  br i1 %waits, label %nap, label %done
nap:
  call i32 @usleep(i32 300)
"""
TURNS = 12


def turning() -> Program:
    """Each of its launches adds what it reads of the launch before in other threads' tasks; one in
    the middle is too small for threads, and one has no tasks."""
    declarations = "declare i32 @omp_get_thread_num()\ndeclare i32 @usleep(i32)"
    kernel = each_task("turn", 2, TURN, declarations)
    buffers = (
        buffer("input", 1000, dtype=I64, source=0),
        *(buffer("tensor", 1000, dtype=I64) for _ in range(TURNS)),
    )
    launches = tuple(
        launch("turn", (n, n + 1), 1000, work=100 if n == 5 else 10**7) for n in range(TURNS)
    )
    empty = launch("turn", (0, 1), 0, work=10**7)
    plan = Plan(
        "turns", (), (tensor_input("x", 1000, dtype=I64),), buffers, (),
        (*launches[:3], empty, *launches[3:]), (TensorResult(TURNS),), (ref("turn"),),
    )  # fmt: skip
    return load(plan, {"turn": kernel})


def turned(x: torch.Tensor) -> torch.Tensor:
    """What that program gives."""
    for _ in range(TURNS):
        x = x.flip(0) * 3 + torch.arange(1000)
    return x


@pytest.mark.parametrize("threads", [2, 3, 8, 16, 33, 64])
@pytest.mark.usefixtures("two_threads")
def test_launches_share_a_region_in_order_whoever_is_slow(threads: int) -> None:
    program = turning()
    torch.set_num_threads(threads)
    x = torch.arange(1000) % 17
    expected = turned(x)
    for _ in range(20):
        assert torch.equal(program(x)[0], expected)


@pytest.mark.usefixtures("two_threads")
def test_callers_get_the_same_bits_by_any_number_of_threads_and_in_children() -> None:
    program, x = turning(), torch.arange(1000) % 17
    expected = turned(x)

    def call(seed: int) -> int:
        right = 0
        for number in range(30):
            torch.set_num_threads(1 + (seed + number) % 4)
            right += torch.equal(program(x)[0], expected)
        return right

    def child() -> None:
        torch.set_num_threads(1)
        assert torch.equal(program(x)[0], expected)

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call, seed) for seed in range(2)]
        in_child(child)
        in_child(child)
        assert [each.result() for each in calls] == [30, 30]
