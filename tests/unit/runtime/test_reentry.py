"""Calls and forks by a signal handler, in the midst of what its own thread does in the runtime."""

from __future__ import annotations

import faulthandler
import itertools
import os
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import Parameter

from kernelmill.core import after_fork
from kernelmill.plan.ir import Plan, TensorResult
from kernelmill.runtime import background
from kernelmill.runtime.calls import caller as calls
from kernelmill.runtime.calls import engine
from kernelmill.runtime.memory import allocation
from kernelmill.runtime.memory import frames as memory
from kernelmill.runtime.memory.allocation import ResultMemory
from kernelmill.runtime.memory.frames import FramePool
from kernelmill.runtime.program import Program, load
from kernelmill.runtime.weights import (
    binding,
    contents,
    packing,
    page_scan,
    write_watch,
)
from kernelmill.runtime.weights.write_watch import WriteWatch
from tests.interrupted import Interrupt
from tests.unit.runtime.kernels import add, buffer, double, launch, ref, tensor_input

COUNT = 4 * page_scan.PAGE // 4 + 8
"""Elements of a weight: it fills pages, and shares those at its ends with others."""

FILES = tuple(
    module.__file__
    for module in (
        after_fork, background, binding, calls, contents, engine, memory,
        packing, page_scan, allocation, write_watch,
    )
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_wait_for_ever() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def program() -> Program:
    """x + 2 * weight + 2 * bias, of which the weight keys bindings."""
    plan = Plan(
        "packing",
        (),
        (
            tensor_input("x", COUNT),
            tensor_input("weight", COUNT, role="param"),
            tensor_input("bias", COUNT, role="param"),
        ),
        (
            *(buffer("input", COUNT, source=i) for i in range(3)),
            *(buffer("packed", COUNT) for _ in range(2)),
            buffer("arena", COUNT, offset=0),
            buffer("tensor", COUNT),
        ),
        (launch("double", (1, 3), COUNT), launch("double", (2, 4), COUNT)),
        (launch("add", (0, 3, 5), COUNT), launch("add", (5, 4, 6), COUNT)),
        (TensorResult(6),),
        (ref("add"), ref("double")),
        4 * COUNT,
    )
    return load(plan, {"add": add(), "double": double()})


Weights = tuple[torch.Tensor, torch.Tensor]


def weights() -> Weights:
    return Parameter(torch.randn(COUNT)), Parameter(torch.randn(COUNT))


def check(called: Program, its: Weights) -> None:
    x = torch.randn(COUNT)
    (result,) = called(x, *its)
    assert isinstance(result, torch.Tensor)
    weight, bias = (t.detach() for t in its)
    assert torch.equal(result, x + 2 * weight + 2 * bias)


def write(its: Weights) -> None:
    """A write that no version counter tells of."""
    for weight in its:
        weight.data[COUNT // 2] += 1


def everywhere(
    step: int, work: Callable[[], None], handler: Callable[[], object], before: Callable[[], None]
) -> Iterator[None]:
    """Do some work again and again, with the handler at an instruction further on each time."""
    for at in itertools.count(0, step):
        before()
        interrupt = Interrupt(at, FILES, handler)
        with interrupt.on():
            work()
        yield
        if interrupt.left >= 0:
            assert at > 20 * step
            return


@pytest.mark.parametrize("own", [True, False], ids=["the same weights", "others"])
def test_a_handler_may_call_the_program_that_it_interrupts(own: bool) -> None:
    called, its, others = program(), weights(), weights()
    check(called, its)
    theirs = its if own else others

    def handler() -> None:
        write(theirs)
        check(called, theirs)
        check(called, theirs)

    for _ in everywhere(37, lambda: check_or_either(called, its), handler, lambda: write(its)):
        check(called, its)
        write(its)
        check(called, its)
        write(others)
        check(called, others)
    report = called.report()
    check(called, its)
    check(called, others)
    assert called.report()["repacks"] == report["repacks"]


def check_or_either(called: Program, its: Weights) -> None:
    """A call during which the weights may be written to: it has seen them before or after that."""
    x, before = torch.randn(COUNT), [t.detach().clone() for t in its]
    (result,) = called(x, *its)
    assert isinstance(result, torch.Tensor)
    after = [t.detach() for t in its]
    either = [x + 2 * w + 2 * b for w in (before[0], after[0]) for b in (before[1], after[1])]
    assert any(torch.equal(result, one) for one in either)


def test_a_handler_may_call_another_program() -> None:
    one, two, its = program(), program(), weights()
    check(one, its)
    check(two, its)

    def handler() -> None:
        check(two, its)

    for _ in everywhere(37, lambda: check(one, its), handler, lambda: write(its)):
        check(two, its)
        write(its)
        check(two, its)
        check(one, its)


@pytest.mark.skipif(not WriteWatch().allowed, reason="this system does not tell of writes")
@pytest.mark.parametrize("known", [True, False], ids=["a look", "new weights"])
def test_a_handler_may_fork_in_the_midst_of_a_look(known: bool) -> None:
    process, called = os.getpid(), program()
    held = [weights()]

    def prepare() -> None:
        if known:
            write(held[0])
        else:
            held[0] = weights()

    def handler() -> None:
        # The child comes out of the handler into the rest of what it interrupts.
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0

    def work() -> None:
        try:
            check(called, held[0])
            if os.getpid() != process:
                for _ in range(2):
                    write(held[0])
                    check(called, held[0])
        finally:
            if os.getpid() != process:
                os._exit(sys.exc_info()[0] is not None)

    for _ in everywhere(211, work, handler, prepare):
        write(held[0])
        check(called, held[0])


def test_a_handler_may_ask_for_memory_in_the_midst_of_it() -> None:
    assert allocation.memory is not None
    kept = ResultMemory(allocation.memory._alias)
    own: list[torch.Tensor] = []

    def make() -> torch.Tensor:
        return kept.tensor((1024,), (1,), torch.float32, 1024)

    def handler() -> None:
        own.append(make())

    def work() -> None:
        own.append(make())

    for _ in everywhere(1, work, handler, own.clear):
        assert len({tensor.data_ptr() for tensor in own}) == len(own)


def test_a_handler_may_ask_for_a_frame_in_the_midst_of_it() -> None:
    pool = FramePool()
    pool.reserve(1, False)
    for _ in everywhere(1, lambda: drop(pool), lambda: drop(pool), lambda: None):
        assert len(pool.frames) == 0
    assert pool.calls % 2 == 0 and pool.calls > 40


def drop(pool: FramePool) -> None:
    """A frame that is not kept, with two calls."""
    frame = pool.new()
    frame._header.calls = 2
