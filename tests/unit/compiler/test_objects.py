"""Interrupting a parallel compile: it ends soon, and what is in the store is good."""

import _thread
import signal
import threading
import time
from dataclasses import replace

import pytest

from kernelmill.compiler import objects
from kernelmill.compiler.objects import KernelBuilds, Request, obtain
from kernelmill.core import workers
from kernelmill.core.dtype import F32
from kernelmill.core.errors import VerificationError
from kernelmill.core.interpreter import collection_paused
from kernelmill.core.target.machine import host
from kernelmill.core.workers import Workers
from kernelmill.kernel import ir
from kernelmill.kernel.text import parse_kernel
from kernelmill.store import Store
from kernelmill.store.upkeep import survey

TEXT = 'kernel k(a: f32[4] in, b: f32[4] out) tasks(1) type "Copy" {}'


def requests(count):
    kernel = parse_kernel(TEXT)
    scratches = [replace(kernel, name=f"k{n}", scratch=64 * n) for n in range(count)]
    return [Request(made, ("layout",), "model.py:1") for made in scratches]


@pytest.fixture
def compiles(monkeypatch):
    """Kernels "compiled" so far; the hook runs in each compile."""
    seen, hooks = [], []

    def compile_kernel(kernel, target):
        seen.append(kernel.name)
        for hook in hooks:
            hook(kernel)
        return b"\x7fELF" + kernel.name.encode()

    monkeypatch.setattr(objects.codegen, "compile_kernel", compile_kernel)
    return seen, hooks


def test_each_request_is_compiled_once(tmp_path, compiles):
    entries = obtain(requests(20), Store(tmp_path / "k"), host().isa)
    assert sorted(compiles[0]) == sorted(entries) == sorted(f"k{n}" for n in range(20))


def test_an_error_ends_the_pool_and_comes_through(tmp_path, compiles, monkeypatch):
    seen, hooks = compiles
    pools, once, end = [], threading.Lock(), Workers.end

    def told(workers):
        pools.append(workers)
        end(workers)

    def fail(kernel):
        if once.acquire(blocking=False):
            raise RuntimeError("no luck")
        while not any(pool._ended for pool in pools):  # others do not get ahead of the error
            time.sleep(0.001)

    monkeypatch.setattr(Workers, "end", told)
    hooks.append(fail)
    with pytest.raises(RuntimeError, match="no luck"):
        obtain(requests(200), Store(tmp_path / "k"), host().isa)
    assert len(seen) < 200


@pytest.fixture
def python_raises_interrupts():
    """Whatever other tests have set."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_drops_what_has_not_begun_and_leaves_a_good_store(
    tmp_path, compiles, monkeypatch, python_raises_interrupts
):
    seen, hooks = compiles
    left, once = threading.Event(), threading.Lock()
    leave = KernelBuilds.__exit__

    def exit(self, *error):
        left.set()
        leave(self, *error)

    def interrupt(kernel):
        if len(seen) >= 3 and once.acquire(blocking=False):
            # Python drops an interrupt that comes while a finalizer runs: a user presses it again.
            _thread.interrupt_main()
            while not left.wait(10.0):
                _thread.interrupt_main()
        elif len(seen) >= 3:
            left.wait(60.0)

    monkeypatch.setattr(KernelBuilds, "__exit__", exit)
    hooks.append(interrupt)
    with pytest.raises(KeyboardInterrupt), collection_paused():
        obtain(requests(200), Store(tmp_path / "k"), host().isa)
    assert len(seen) < 100
    found = survey(str(tmp_path / "k"))
    assert (found.count("ok"), found.count("bad"), found.leftovers) == (len(seen), 0, ())


def test_ctrl_c_while_a_compile_under_way_is_waited_for_still_waits_for_it(
    tmp_path, compiles, monkeypatch, python_raises_interrupts
):
    begun, waiting, interrupted = threading.Event(), threading.Event(), threading.Event()
    end = Workers.end

    def told(workers):
        try:
            waiting.set()
            end(workers)
        except KeyboardInterrupt:
            interrupted.set()
            raise

    def interrupt(_):
        begun.set()
        assert waiting.wait(60.0)
        main = threading.main_thread().ident
        signal.pthread_kill(main, signal.SIGINT)  # which ends a wait
        while not interrupted.wait(10.0):
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.1)

    monkeypatch.setattr(Workers, "end", told)
    compiles[1].append(interrupt)
    with (
        pytest.raises(KeyboardInterrupt),
        KernelBuilds(Store(tmp_path / "k"), host().isa) as builds,
    ):
        builds.add(requests(1))
        assert begun.wait(60.0)
    found = survey(str(tmp_path / "k"))
    assert (found.count("ok"), found.leftovers) == (1, ())


def test_ctrl_c_while_a_thread_of_the_pool_starts_still_waits_for_what_it_does(
    tmp_path, compiles, monkeypatch
):
    begun, left = threading.Event(), threading.Event()
    start = workers.start_new_thread

    def interrupted_start(*thread):
        start(*thread)
        assert begun.wait(60.0)
        raise KeyboardInterrupt

    def compile(_):
        begun.set()
        assert left.wait(60.0)
        time.sleep(0.1)

    compiles[1].append(compile)
    leave = KernelBuilds.__exit__
    monkeypatch.setattr(workers, "start_new_thread", interrupted_start)
    monkeypatch.setattr(KernelBuilds, "__exit__", lambda *a: (left.set(), leave(*a))[1])
    with (
        pytest.raises(KeyboardInterrupt),
        KernelBuilds(Store(tmp_path / "k"), host().isa) as builds,
    ):
        builds.add(requests(1))
    found = survey(str(tmp_path / "k"))
    assert (found.count("ok"), found.leftovers) == (1, ())


def test_what_a_kernel_is_told_with(tmp_path, compiles):
    (request,) = requests(1)
    request = replace(request, shapes=((2, 2), (4,)), graph="forward_3")
    entry = obtain([request], Store(tmp_path / "k"), host().isa)["k0"]
    operator = entry.info["op_info"]
    assert operator["inputs"][0][0]["shape"] == [2, 2]
    assert operator["outputs"][0][0]["shape"] == [4]
    assert operator["graph_id"] == 3
    assert operator["full_name"] == "forward_3/Copy"


def test_programs_are_begun_one_by_one_and_share_equal_kernels(tmp_path, compiles):
    store = Store(tmp_path / "k")
    with KernelBuilds(store, host().isa) as builds:
        builds.add(requests(3))
        builds.add(requests(5))
        first, second = builds.finish()
    assert sorted(compiles[0]) == [f"k{n}" for n in range(5)]
    assert list(first) == ["k0", "k1", "k2"]
    assert first == {name: second[name] for name in first}


def test_a_kernel_that_was_begun_before_its_program_is_known_is_compiled_once(tmp_path, compiles):
    wanted = requests(5)
    with KernelBuilds(Store(tmp_path / "k"), host().isa) as builds:
        ahead = builds.begin(wanted[3])
        builds.add(wanted)
        builds.add(wanted[2:])
        first, second = builds.finish()
    assert sorted(compiles[0]) == [f"k{n}" for n in range(5)]
    assert first["k3"] is second["k3"] is ahead.result()
    assert sorted(second) == ["k2", "k3", "k4"]


def test_what_lowering_got_wrong_is_an_error(tmp_path):
    kernel = parse_kernel(TEXT)
    broken = replace(kernel, body=[ir.Store("c", 0, ir.Value("0", ir.VType(F32)))])
    with pytest.raises(VerificationError, match="lowering"):
        obtain([Request(broken, (), "")], Store(tmp_path / "k"), host().isa)
