"""Tiles are configured where they are used and nowhere else; each thread has its own, through
switches, signals and forks."""

from __future__ import annotations

import re
import signal
import threading
from types import FrameType

import numpy as np
import pytest

from kernelmill import codegen
from kernelmill.codegen import compile
from kernelmill.codegen.compile import assembly
from kernelmill.core.dtype import F32
from kernelmill.core.target.dot_units import TILE_BF16, TILE_BYTES
from kernelmill.core.target.isa import Isa, host_isa, why_not_here
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel, VType
from kernelmill.plan.ir import sub_launches
from kernelmill.superkernel.driver import driver_ir
from kernelmill.superkernel.launch_fusion import form
from tests.forking import in_child
from tests.properties.test_super_kernels import Step, kernels_of, plan_of
from tests.tile_unit import AMX, REAL
from tests.unit.codegen.native import Native
from tests.unit.codegen.test_tiles import TASKS, arrays, product, two_by_two
from tests.unit.codegen.tile_state import problems, uses_tiles

SUMS = VType(F32, 16, 16)


def in_one_branch() -> Kernel:
    """The first task has tiles, the others a library call."""
    b = KernelBuilder("in_one_branch", "MatMul", tasks=4)
    b.buffer("y", F32, 4 * 256, "inout")
    with b.when(b.op("lt", b.index(b.task), b.index(1))) as branch:
        b.tile_store("y", b.task * 256, b.tile_zero(SUMS), 16)
    with b.otherwise(branch):
        b.store("y", b.task, b.op("lgamma", b.load("y", b.task, F32)))
    return b.kernel


def around_a_call() -> Kernel:
    """Tiles, a library call, tiles again."""
    b = KernelBuilder("around_a_call", "MatMul", tasks=4)
    b.buffer("y", F32, 4 * 512, "inout")
    b.tile_store("y", b.task * 512, b.tile_zero(SUMS), 16)
    b.store("y", b.task, b.op("lgamma", b.load("y", b.task, F32)))
    b.tile_store("y", b.task * 512 + 256, b.tile_load("y", b.task * 512, SUMS, 16), 16)
    return b.kernel


KERNELS = {
    "two by two": two_by_two(24),
    "one tile": product(TILE_BF16, 16, 16, 16),
    "edges": product(TILE_BYTES[1], 5, 7, 3),
    "in one branch": in_one_branch(),
    "around a call": around_a_call(),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_way_out_of_a_kernel_releases_its_tiles(name: str) -> None:
    text = assembly(KERNELS[name], AMX)
    assert uses_tiles(text) and "ldtilecfg" in text
    assert problems(text) == []


BROKEN = {
    "f: retq with tiles": "{use}\tretq\n",
    "f: tilezero without a configuration": "\ttilezero\t%tmm0\n\tretq\n",
    "f: jmp other with tiles": "{use}\tjmp\tother\n",
    "f: jne other with tiles": "{use}\tjne\tother\n\ttilerelease\n\tretq\n",
    "f: jmpq *%rax cannot be followed": "\tjmpq\t*%rax\n",
}


@pytest.mark.parametrize("problem", BROKEN)
def test_what_is_wrong_in_a_text_is_found(problem: str) -> None:
    frame = "\t.type\tf,@function\nf:\n{}\t.size\tf, .-f\n"
    use = "\tldtilecfg\t(%rsp)\n\ttilezero\t%tmm0\n"
    assert problems(frame.format(BROKEN[problem].format(use=use))) == [problem]
    assert problems(frame.format(f"{use}\ttilerelease\n\tretq\n")) == []
    one_way = f"{use}\tje\t.L1\n\ttilerelease\n.L1:\n\tretq\n"
    assert problems(frame.format(one_way)) == ["f: retq with tiles"]


def test_a_driver_calls_its_kernels_and_waits_without_tiles() -> None:
    """Its own code has none: what is between two kernels runs when the first has returned."""
    steps: list[Step] = [(8, False, 0, 1, ""), (8, True, 2, 1, ""), (8, False, 3, 2, "")]
    plan = form(plan_of(steps, [4], ""), kernels_of(steps), threads=2).plan
    (one,) = plan.supers
    driver = driver_ir(one, list(sub_launches(plan, one)), codegen.spin_hint(AMX))
    text = compile.emit(driver, AMX, assembly=True).decode()
    assert not uses_tiles(text) and "tilecfg" not in text
    names = {kernel.name for kernel in kernels_of(steps).values()}
    assert names <= {call.partition("@")[0] for call in re.findall(r"\tcallq?\t(\S+)", text)}
    assert "pause" in text


# ---- running ------------------------------------------------------------------------------------

UNITS = [
    pytest.param(Isa(host_isa().triple, host_isa().cpu), id="in vectors"),
    pytest.param(AMX, marks=REAL, id="tiles"),
]
"""Without the unit the same tests run with vectors in its place."""


@pytest.fixture(params=UNITS)
def isa(request: pytest.FixtureRequest) -> Isa:
    if reason := why_not_here(request.param):
        pytest.skip(reason)
    return request.param


class Work:
    """A kernel with its arguments, and its result when nothing else runs."""

    def __init__(self, kernel: Kernel, isa: Isa) -> None:
        self.kernel, self.native = kernel, Native(kernel, isa)
        self.expected = self.result()

    def result(self) -> np.ndarray:
        memory = arrays(self.kernel)
        self.native(memory, tasks=(0, TASKS))
        return memory["y"]

    def is_right(self) -> bool:
        return bool(np.array_equal(self.result(), self.expected, equal_nan=True))


def works(isa: Isa) -> list[Work]:
    """Products whose tiles have other shapes, and so other configurations."""
    kernels = [
        product(TILE_BF16, 16, 16, 16),
        product(TILE_BYTES[1], 5, 7, 3),
        product(TILE_BF16, 3, 5, 2),
        product(TILE_BYTES[2], 16, 16, 16),
    ]
    return [Work(kernel, isa) for kernel in kernels]


def test_results_are_the_interpreters(isa: Isa) -> None:
    for work in works(isa):
        memory = arrays(work.kernel)
        run_kernel(work.kernel, memory)
        np.testing.assert_array_equal(work.expected, memory["y"])


def test_threads_have_tiles_of_their_own(isa: Isa) -> None:
    """More threads than processors, so that they are switched in the midst of products."""
    chosen, right = works(isa), list[bool]()
    start = threading.Barrier(8)

    def run(work: Work) -> None:
        start.wait()
        right.append(all(work.is_right() for _ in range(200)))

    threads = [threading.Thread(target=run, args=(chosen[n % 4],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 8


def test_a_signal_leaves_tiles_as_they_are(isa: Isa) -> None:
    """Its handler runs another product; the signal itself comes in the midst of them, too."""
    first, second, *_ = works(isa)
    handled: list[bool] = []

    def handler(number: int, frame: FrameType | None) -> None:
        handled.append(second.is_right())
        signal.setitimer(signal.ITIMER_REAL, 0.0005)  # the next one, when this one is done

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
    try:
        while len(handled) < 50:
            assert first.is_right()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # drops one that is on its way
        signal.signal(signal.SIGALRM, before)
    assert all(handled)


def test_a_forked_child_goes_on(isa: Isa) -> None:
    first, second, *_ = works(isa)
    assert first.is_right()

    def child() -> None:
        assert first.is_right() and second.is_right()

    in_child(child)
    assert second.is_right()
