"""Guard pages around buffers: what a kernel reads behind one is found."""

from __future__ import annotations

import ctypes
import faulthandler
import signal

import numpy as np
import pytest
import torch

from kernelmill.codegen import compile_kernel
from kernelmill.core.dtype import F32
from kernelmill.core.target.isa import host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Kernel
from tests import guard_pages
from tests.emulation import emulator
from tests.forking import in_child
from tests.machine_code import MachineCode
from tests.unit.codegen.native import Native

pytestmark = pytest.mark.skipif(emulator() is not None, reason="the emulator has guards of its own")


def copies(places: int) -> Kernel:
    """y[i] = x[i] for so many places."""
    b = KernelBuilder("copies", "Map")
    b.buffer("x", F32, places, "in")
    b.buffer("y", F32, places, "out")
    with b.loop(0, places) as loop:
        b.store("y", loop.index, b.load("x", loop.index, F32))
    return b.kernel


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_pages, "is_on", lambda: True)


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("places", [1, 7, 1024, 1025])
def test_a_kernel_within_its_buffers_runs(places: int) -> None:
    memory = {"x": np.arange(places, dtype=np.float32), "y": np.zeros(places, np.float32)}
    Native(copies(places))(memory)
    np.testing.assert_array_equal(memory["y"], memory["x"])


@pytest.mark.usefixtures("guarded")
def test_buffers_that_share_memory_go_on_sharing_it() -> None:
    b = KernelBuilder("moves", "Map", tasks=3)
    b.buffer("x", F32, 3, "in")
    b.buffer("y", F32, 3, "out")
    b.store("y", b.task, b.load("x", b.task, F32))
    shared = np.arange(4, dtype=np.float32)
    code = MachineCode(compile_kernel(b.kernel, host_isa()), "moves")
    code([shared[:3], shared[1:]], [], [(0, 1), (1, 2), (2, 3)])
    np.testing.assert_array_equal(shared, np.zeros(4))


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("missing", ["x", "y"])
def test_one_that_leaves_a_buffer_is_stopped(missing: str) -> None:
    run = Native(copies(9))
    memory = {name: np.zeros(9, np.float32) for name in ("x", "y")}
    memory[missing] = memory[missing][:8]

    def child() -> None:
        faulthandler.disable()
        run(memory)

    with pytest.raises(AssertionError, match=f"ended with {-signal.SIGSEGV.value}"):
        in_child(child)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("place", [-1, 5])
def test_what_is_written_beside_the_memory_of_a_program_is_found(at_end: bool, place: int) -> None:
    with guard_pages.GuardedMemory(at_end) as memory:
        made = memory.empty_strided((5,), (1,), torch.float32)
        made.fill_(1.0)
        memory.check()

        def child() -> None:
            faulthandler.disable()
            ctypes.c_float.from_address(made.data_ptr() + 4 * place).value = 0.0
            memory.check()

        with pytest.raises(AssertionError, match=r"ended with|written (in front|behind)"):
            in_child(child)


@pytest.mark.parametrize("at_end", [True, False])
def test_arguments_that_share_memory_go_on_sharing_it(at_end: bool) -> None:
    base = torch.arange(12.0)
    given = [base[1:7].view(2, 3).t(), base[4:], torch.empty(0, 3)]
    with guard_pages.GuardedMemory(at_end) as memory:
        moved = memory.moved(given)
        for one, other in zip(moved, given, strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()
        moved[1].zero_()
        assert moved[0].tolist() == [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]
        assert base[4:].sum() > 0
