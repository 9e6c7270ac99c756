"""Calls whose weights are packed launch by launch, and the packing behind them that ends this."""

import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_char
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from kernelmill.plan.ir import AtenCall, Plan, SuperKernel, TensorResult
from kernelmill.runtime import background
from kernelmill.runtime.memory.allocation import HugePageArena, Layout
from kernelmill.runtime.program import Program, load
from kernelmill.runtime.weights import binding, packing, streaming
from kernelmill.runtime.weights.binding import once
from kernelmill.runtime.weights.streaming import (
    Readers,
    StreamLayout,
    components,
    readers,
    stream_of,
)
from tests.unit.runtime.calls.test_aten import CHECK as POSITIVE
from tests.unit.runtime.kernels import add, buffer, double, each_task, launch, ref
from tests.unit.runtime.weights.test_parameters import (
    CHANGES,
    Params,
    check,
    in_place,
    packing_plan,
    params,
)

Run = Callable[[], None]
OBJECTS = {"add": add(), "double": double()}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs stream too."""
    monkeypatch.setattr(streaming, "LEAST_BYTES", 0)
    monkeypatch.setattr(streaming, "LEAST_TURNS", 1)
    monkeypatch.setattr(streaming, "SHARE_BYTES", 0)
    monkeypatch.setattr(streaming, "SHARE_PART", 0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Nothing is packed behind before this is called."""
    waiting: list[background.Work] = []
    monkeypatch.setattr(background, "submit", waiting.append)

    def now() -> None:
        for work in waiting:
            for _ in work():
                pass
        waiting.clear()

    return now


@pytest.fixture
def program() -> Program:
    return load(packing_plan(), OBJECTS)


def counts(program: Program) -> tuple[int, int, int]:
    """Calls that streamed, parts still to be packed, parts packed for good."""
    report = program.report()
    return report["streamed"], report["packing"], report["repacks"]


def test_calls_stream_until_the_weights_are_packed(program: Program, run: Run) -> None:
    p = params()
    check(program, p)
    assert counts(program) == (1, 2, 0)
    check(program, p)
    assert counts(program) == (2, 2, 0)
    run()
    assert counts(program) == (2, 0, 2)
    for _ in range(3):
        check(program, p)
    assert counts(program) == (2, 0, 2) and program.report()["packed_bytes"] == 2 * 16


def test_a_call_that_may_not_stream_packs_all(program: Program) -> None:
    program.pack_at_once()
    p = params()
    for _ in range(2):
        check(program, p)
        assert counts(program) == (0, 0, 2) and program.report()["packed_bytes"] == 2 * 16


def test_the_thread_does_it_by_itself(program: Program) -> None:
    p = params()
    check(program, p)
    background.wait()
    check(program, p)
    assert counts(program) == (1, 0, 2)


def test_parts_are_used_from_when_they_are_there(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[background.Work] = []
    monkeypatch.setattr(background, "submit", waiting.append)
    p = params()
    check(program, p)
    pieces: Iterator[None] = waiting[0]()
    next(pieces)
    check(program, p)
    assert counts(program) == (2, 1, 1)
    for _ in pieces:
        pass
    check(program, p)
    assert counts(program) == (2, 0, 2)


def test_later_calls_pack_a_share_each(
    program: Program, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SHARE_BYTES", 1)
    p = params()
    for expected in ((1, 2, 0), (2, 1, 1), (2, 0, 2)):
        check(program, p)
        assert counts(program) == expected
    run()
    check(program, p)
    assert counts(program) == (2, 0, 2)


def test_calls_end_the_packing_where_the_thread_gets_no_time(
    program: Program, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SHARE_PART", 1 / 16)
    asked: list[bool] = []

    def arena(layouts: Iterable[Layout], waiting: bool = True) -> HugePageArena:
        asked.append(waiting)
        return HugePageArena(layouts, waiting)

    monkeypatch.setattr(packing, "HugePageArena", arena)
    p = params()
    for _ in range(3):
        check(program, p)
    assert counts(program) == (2, 0, 2)
    # What calls pack by shares lies where it stays: the thread has nothing to move.
    assert asked == [True, False, False]


@pytest.mark.parametrize("pieces", [1, 15, 16, 17, 400, 1000])
def test_shares_of_twenty_calls_are_all_there_is(
    pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SHARE_PART", 1 / 16)
    sizes = {number: (number % 5 + 1) << 20 for number in range(pieces)}
    stream = StreamLayout(tuple((n, n) for n in range(pieces)), sizes, {}, 0)
    pending, calls = set(range(pieces)), 0
    while pending:
        pending -= set(stream.share(pending))
        calls += 1
    assert calls <= 20


def test_a_call_that_is_bound_twice_packs_no_share(
    program: Program, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a neighbour of a weight was written while it was bound."""
    monkeypatch.setattr(streaming, "SHARE_BYTES", 1)
    engine = program.engine
    validate, refused = engine.entry_validate, list[int]()

    def refuse_once(*args: Any) -> int:
        refused.append(0)
        return -1 if len(refused) == 1 else int(validate(*args))

    monkeypatch.setattr(engine, "entry_validate", refuse_once)
    p = params()
    check(program, p)
    assert len(refused) == 2 and counts(program) == (1, 2, 0)
    check(program, p)
    assert counts(program) == (2, 1, 1)
    run()


def test_nothing_begins_behind_a_caller_who_holds_it() -> None:
    seen: list[str] = []

    def work() -> Iterator[None]:
        seen.append("begun")
        yield

    with background.paused():
        with background.paused():
            pass
        background.submit(work)
        assert not seen
    background.wait()
    assert seen == ["begun"]


@pytest.mark.parametrize("change", [*CHANGES, lambda t: t.data.mul_(3)])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_change_before_the_packing_is_seen(
    program: Program, run: Run, which: int, change: Callable[[torch.Tensor], None]
) -> None:
    p = params()
    check(program, p)
    change(p[which])
    check(program, p)
    run()
    check(program, p)
    check(program, p)
    assert program.report()["packing"] == 0


@pytest.mark.parametrize("change", [*CHANGES, lambda t: t.data.mul_(3)])
def test_a_change_between_two_calls_that_the_packing_meets(
    program: Program, run: Run, change: Callable[[torch.Tensor], None]
) -> None:
    p = params()
    check(program, p)
    change(p[0])
    run()
    assert counts(program) == (1, 1, 1)  # the weight as it was is nowhere any more
    check(program, p)
    assert counts(program) == (1, 0, 2)


def test_a_change_after_the_packing_before_it_is_used(program: Program, run: Run) -> None:
    p = params()
    check(program, p)
    run()
    in_place(p[0])
    check(program, p)
    assert counts(program) == (1, 0, 3)


def test_parameters_that_have_died_are_not_packed(program: Program, run: Run) -> None:
    p = params()
    check(program, p)
    del p
    run()
    assert counts(program) == (1, 0, 0)
    q = params()
    check(program, q)
    run()
    check(program, q)
    assert counts(program) == (2, 0, 2)


def test_memory_that_is_given_back_is_not_read(program: Program, run: Run) -> None:
    p = params()
    check(program, p)
    kept = p[0].detach().clone()
    p[0].untyped_storage().resize_(0)
    run()
    assert counts(program) == (1, 1, 1)
    p[0].untyped_storage().resize_(16)
    with torch.no_grad():
        p[0].copy_(kept)
    check(program, p)


@pytest.mark.skipif(not binding.can_copy(), reason="this system packs at once")
def test_a_copy_of_memory_that_is_gone_fails() -> None:
    copies = binding._Copies(1 << 20)
    gone = mmap.mmap(-1, 1 << 20)
    view = c_char.from_buffer(gone)
    address = addressof(view)
    gone[:4] = b"here"
    assert copies._copied(address, 1 << 20, 0)
    del view
    gone.close()
    assert not copies._copied(address, 1 << 20, 0)
    copies.close()


def test_another_program_takes_what_was_packed(program: Program, run: Run) -> None:
    other = load(packing_plan(), OBJECTS)
    p = params()
    check(program, p)
    check(other, p)
    run()
    for each in (program, other):
        check(each, p)
    assert (counts(program), counts(other)) == ((1, 0, 2), (1, 0, 0))
    third = load(packing_plan(), OBJECTS)
    check(third, p)
    assert counts(third) == (0, 0, 0)


def test_sets_of_parameters_stream_each_for_itself(program: Program, run: Run) -> None:
    layers = [params() for _ in range(3)]
    for layer in layers * 2:
        check(program, layer)
    assert counts(program) == (6, 6, 0)
    run()
    for layer in layers:
        check(program, layer)
    assert counts(program) == (6, 0, 6)


def test_threads_at_once(program: Program) -> None:
    p = params()
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(check, program, p) for _ in range(200)]:
            done.result()
    background.wait()
    check(program, p)
    assert counts(program)[1:] == (0, 2)


class Meeting:
    """Holds the first thread that packs until another one waits for what it packs, or is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.reached, self.leave = threading.Event(), threading.Event()
        plain = getattr(owner, name)

        def held(*args: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                assert self.leave.wait(60)
            return plain(*args)

        def wait(seconds: float) -> None:
            self.leave.set()
            time.sleep(0)

        monkeypatch.setattr(owner, name, held)
        monkeypatch.setattr(binding, "wait", wait)


def test_a_share_does_not_pack_what_the_thread_is_packing(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SHARE_BYTES", 1 << 20)
    meeting = Meeting(monkeypatch, binding.PackJob, "_packed")
    p = params()
    check(program, p)
    assert meeting.reached.wait(60)
    check(program, p)
    meeting.leave.set()
    background.wait()
    check(program, p)
    assert counts(program) == (1, 0, 2)


def test_programs_do_not_pack_what_another_one_is_packing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binding, "can_copy", lambda: False)
    monkeypatch.setattr(packing, "can_copy", lambda: False)
    programs, p = [load(packing_plan(), OBJECTS) for _ in range(2)], params()
    meeting = Meeting(monkeypatch, packing.Parameters, "_run")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(check, programs[0], p)
        assert meeting.reached.wait(60)
        second = pool.submit(check, programs[1], p)
        second.add_done_callback(lambda _: meeting.leave.set())
        first.result(), second.result()
    assert sum(counts(each)[2] for each in programs) == 2


def test_a_handler_packs_what_its_thread_is_packing() -> None:
    inner = partial(once, "key", lambda: None, lambda: "inner")
    assert once("key", lambda: None, inner) == "inner"


def test_packing_that_was_cut_off_is_done_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once("key", lambda: None, fail)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(once, "key", lambda: None, lambda: "made").result(60) == "made"


def test_a_forked_process_packs_for_itself(
    program: Program, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = params()
    check(program, p)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        check(program, p)
    assert counts(program) == (1, 0, 2)


def test_a_system_that_cannot_copy_packs_at_once(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    check(program, params())
    assert counts(program) == (0, 0, 2)


def test_packing_that_fails_is_done_by_the_next_call(
    program: Program, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(size: int) -> None:
        raise OSError(f"no room for {size} bytes")

    monkeypatch.setattr(binding, "_Copies", full)
    p = params()
    check(program, p)
    with pytest.raises(OSError, match="no room"):
        run()
    check(program, p)
    assert counts(program) == (1, 0, 2)


def test_work_that_fails_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> Iterator[None]:
        yield
        raise ValueError("spilled")

    background.submit(work)
    background.wait()
    assert "spilled" in caplog.text


def test_a_status_of_a_kernel_is_an_error_and_packing_goes_on(run: Run) -> None:
    plan = packing_plan()
    check_bias = launch("positive", (6, -1), 4)
    plan = replace(
        plan,
        steps=(plan.steps[0], check_bias, *plan.steps[1:]),
        kernels=(*plan.kernels, ref("positive")),
        checks=("bias is not positive",),
    )
    program = load(plan, {**OBJECTS, "positive": each_task("positive", 2, POSITIVE)})
    weight, bias, scale = params()
    p = (weight, Parameter(-1 - bias.detach().abs()), scale)
    for streamed in (1, 2):
        with pytest.raises(IndexError, match="bias is not positive"):
            program(torch.randn(4), *p)
        assert counts(program) == (streamed, 2, 0)
    run()
    with pytest.raises(IndexError, match="bias is not positive"):
        program(torch.randn(4), *p)
    assert counts(program) == (2, 0, 2)
    with torch.no_grad():
        p[1].abs_()
    check(program, p)


def aten_plan() -> Plan:
    """The plan of `packing_plan` with relu of the packed bias and of the sum added to the sum."""
    plan = packing_plan()
    relu = [AtenCall("aten.relu.default", (("tensor", b),), (), (b + 4,)) for b in (6, 9)]
    return replace(
        plan,
        buffers=(*plan.buffers[:9], *(buffer("tensor", 4) for _ in range(6))),
        steps=(
            *plan.steps, *relu, launch("add", (9, 10, 11), 4), launch("add", (11, 13, 12), 4),
        ),
        results=(TensorResult(12),),
    )  # fmt: skip


def test_what_operators_of_torch_read_is_packed_at_once(run: Run) -> None:
    program = load(aten_plan(), OBJECTS)
    p = params()

    def checked() -> None:
        x = torch.randn(4)
        weight, bias, scale = (t.detach() for t in p)
        total = x + 4 * weight + 2 * bias + scale
        found: Any = program(x, *p)
        assert torch.equal(found[0], total + (2 * bias).relu() + total.relu())

    checked()
    assert counts(program) == (1, 1, 1)
    run()
    checked()
    assert counts(program) == (1, 0, 2)


def test_inference_tensors_stream_like_others(program: Program, run: Run) -> None:
    with torch.inference_mode():
        weight = torch.randn(4)
    p: Params = (weight, Parameter(torch.randn(4)), torch.randn(4))
    check(program, p)
    run()
    for _ in range(3):
        check(program, p)
    assert counts(program) == (1, 0, 2)
    with torch.inference_mode():
        weight.add_(1)
    check(program, p)
    assert counts(program) == (1, 0, 3)


def test_readers_are_counted_in_launches_and_super_kernels_from_their_first() -> None:
    plan = packing_plan()
    parts = components(plan)
    assert readers(plan, parts) == [Readers(0, 0), Readers(1, 1)]
    whole = SuperKernel("super", "s", 0, 2, ((0, 64), (0, 64)), ((), ()))
    assert readers(replace(plan, supers=(whole,)), parts) == [Readers(0, 0), Readers(0, 1)]
    again = replace(plan, steps=(*plan.steps, launch("add", (5, 3, 9), 4)))
    assert readers(again, parts) == [Readers(0, 3), Readers(1, 1)]
    by_torch = AtenCall("aten.relu.default", (("tensor", 5),), (), (9,))
    mixed = replace(plan, steps=(by_torch, *plan.steps))
    assert readers(mixed, parts) == [None, Readers(1, 1)]


def test_what_is_read_at_different_times_shares_memory() -> None:
    plan = packing_plan()
    parts = components(plan)
    stream = stream_of(plan, parts, (0, 1))
    assert stream is not None
    assert stream.order == ((0, 0), (1, 1)) and stream.bytes == 2 * 64
    assert stream.offsets == {5: 0, 4: 64, 6: 0}
    again = replace(plan, steps=(*plan.steps, launch("add", (5, 3, 9), 4)))
    stream = stream_of(again, parts, (0, 1))
    assert stream is not None and stream.offsets == {5: 0, 4: 64, 6: 128}


def test_streaming_has_to_be_worth_while(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = packing_plan()
    parts = components(plan)
    monkeypatch.setattr(streaming, "LEAST_BYTES", 3 * 64)
    assert stream_of(plan, parts, (0, 1)) is not None
    assert stream_of(plan, parts, (0,)) is None
    monkeypatch.setattr(streaming, "LEAST_TURNS", 2)
    assert stream_of(plan, parts, (0, 1)) is None
    monkeypatch.setattr(streaming, "LEAST_TURNS", 1)
    monkeypatch.setattr(streaming, "LEAST_BYTES", 0)
    monkeypatch.setattr(streaming, "LARGEST_BYTES", 64)
    stream = stream_of(plan, parts, (0, 1))
    assert stream is not None and stream.order == ((1, 1),)
