"""Forks while other threads compile, pack or call: the child compiles and calls as if alone."""

import gc
import os
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch import nn

from kernelmill import codegen
from kernelmill.artifact.bind import Bound
from kernelmill.codegen import compile
from kernelmill.core.target.isa import host_isa
from kernelmill.inference import cache_compile, finish_packing
from kernelmill.runtime import background, executor
from kernelmill.runtime.weights import binding, streaming
from kernelmill.runtime.weights.packing import Parameters
from kernelmill.store import Store
from kernelmill.torch_internals import compiles
from tests.forking import in_child


class Model(nn.Module):
    def __init__(self, folder, factor=2.0):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 6)
        self.factor = factor
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x):
        return torch.relu(self.linear(x)) * self.factor


def check(call, model):
    x = torch.randn(3, 6)
    with torch.no_grad():
        torch.testing.assert_close(call(x), model.run(x), atol=1e-5, rtol=1e-5)


class Held:
    """Holds a thread other than the main one where it comes to a function, until it is let go."""

    def __init__(self, monkeypatch, owner, name):
        self.reached, self._leave = threading.Event(), threading.Event()
        plain, process = getattr(owner, name), os.getpid()

        def held(*args, **kwargs):
            main = threading.current_thread() is threading.main_thread()
            if not main and os.getpid() == process:
                self.reached.set()
                self._leave.wait()
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, held)

    @contextmanager
    def during(self, work):
        """Inside, a thread is in the midst of some work."""
        errors = []

        def run():
            try:
                work()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert self.reached.wait(60)
        try:
            yield
        finally:
            self._leave.set()
            thread.join()
        assert errors == []


def compile_and_call(folder):
    """Everything anew, in a child: by torch.compile, by cache_compile, from its entry."""

    def work():
        assert gc.isenabled()
        torch.set_num_threads(1)  # the parent's OpenMP threads are not here
        # What the parent compiles would be waited for, as between any two processes.
        os.environ["KERNELMILL_KERNEL_META"] = str(folder / "kernels")
        model = Model(folder / "child", 3.0)
        check(torch.compile(model.run, backend="kernelmill"), model)
        check(model.cached, model)
        again = Model(folder / "child", 3.0)
        check(again.cached, again)
        assert again.cached.statistics["loaded"] == 1
        finish_packing()

    return work


@pytest.mark.parametrize("way", ["compile", "cache"])
def test_a_fork_during_a_compile(tmp_path, monkeypatch, way):
    held = Held(monkeypatch, codegen, "compile_kernel")
    model = Model(tmp_path / "parent", 1.0 + torch.rand(()).item())  # in no store yet
    call = torch.compile(model.run, backend="kernelmill") if way == "compile" else model.cached
    with held.during(lambda: check(call, model)):
        assert not gc.isenabled()
        in_child(compile_and_call(tmp_path))
    check(call, model)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Bound, "__call__"),
        (Parameters, "_pack"),
        (Store, "_find"),
    ],
)
def test_a_fork_inside_of_another_threads_call(tmp_path, monkeypatch, owner, name):
    first = Model(tmp_path / "parent")
    check(first.cached, first)
    model = Model(tmp_path / "parent")  # which finds that entry
    held = Held(monkeypatch, owner, name)

    def child():
        check(model.cached, model)  # the very object that the other thread is in
        compile_and_call(tmp_path)()

    with held.during(lambda: check(model.cached, model)):
        in_child(child)
    check(model.cached, model)


def test_a_fork_during_packing(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "LEAST_BYTES", 0)
    monkeypatch.setattr(streaming, "LEAST_TURNS", 1)
    held = Held(monkeypatch, binding.PackJob, "_packed")
    first, model = Model(tmp_path / "parent"), Model(tmp_path / "parent")
    check(first.cached, first)
    check(model.cached, model)  # is loaded, so that it streams
    assert held.reached.wait(60)

    def child():
        check(model.cached, model)
        finish_packing()
        check(model.cached, model)
        assert model.cached.report()["packing"] == 0
        compile_and_call(tmp_path)()

    in_child(child, ends_normally=True)
    held._leave.set()
    finish_packing()
    check(model.cached, model)


def test_a_fork_by_a_thread_that_holds_packing_leaves_the_childs_alone():
    done = []

    def work():
        done.append(True)
        yield

    def child():
        outer.close()
        with background.paused():
            background.submit(work)
        background.wait()
        assert done

    with ExitStack() as outer:
        outer.enter_context(background.paused())
        in_child(child)


def emit_something():
    compile.emit("define i64 @f(i64 %x) {\n  %y = mul i64 %x, %x\n  ret i64 %y\n}", host_isa())


@contextmanager
def again_and_again(call):
    """Inside, two threads call it without a pause."""
    end = threading.Event()

    def run():
        while not end.is_set():
            call()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("call", [emit_something, executor._assembled], ids=["emit", "assemble"])
def test_forks_while_other_threads_are_inside_of_llvm(call):
    with again_and_again(call):
        for _ in range(10):
            in_child(lambda: (emit_something(), executor._assembled()))


def test_forks_while_other_threads_call_a_compiled_function():
    torch.set_num_threads(1)
    x = torch.randn(3, 6)

    def double(x):
        return torch.relu(x) * 2.0

    compiled = torch.compile(double, backend="kernelmill")

    def child():
        torch.testing.assert_close(compiled(x), double(x))

    child()
    with again_and_again(lambda: compiled(x)):
        for _ in range(8):
            in_child(child)
    child()


def test_a_thread_that_enters_while_the_others_are_looked_at(monkeypatch):
    looked_at = compiles._in
    monkeypatch.setattr(compiles, "_in", lambda *given: (looked_at(*given), time.sleep(0.0005))[0])
    torch.set_num_threads(1)
    x = torch.randn(3, 6)
    compiled = torch.compile(torch.relu, backend="kernelmill")

    def child():
        torch.testing.assert_close(compiled(x), torch.relu(x))

    child()
    with again_and_again(lambda: (time.sleep(0.0002), compiled(x))):
        for _ in range(15):
            in_child(child)


@pytest.mark.parametrize("enters", [True, False])
def test_a_thread_that_enters_after_the_others_were_looked_at(monkeypatch, enters):
    dynamo, reset = torch._dynamo, []
    monkeypatch.setattr(dynamo, "reset_code_caches", lambda: reset.append(True))
    monkeypatch.setattr(dynamo.convert_frame, "compile_lock", dynamo.convert_frame.compile_lock)
    entered, leave = threading.Event(), threading.Event()

    def run(x):
        entered.set()
        leave.wait()
        return [x]

    compiled = torch.compile(torch.relu, backend=lambda graph, inputs: run)
    thread = threading.Thread(target=compiled, args=(torch.randn(3),))
    threads = compiles._ForkHandlers()
    threads.before_fork()
    if enters:
        thread.start()
        assert entered.wait(60)
    threads.in_child()
    leave.set()
    if enters:
        thread.join()
    assert bool(reset) == enters


def test_a_child_keeps_what_no_other_thread_is_in():
    compiles = []

    def backend(graph, inputs):
        compiles.append(graph)
        return graph

    compiled = torch.compile(torch.relu, backend=backend)
    compiled(torch.randn(3))

    def child():
        compiled(torch.randn(3))
        assert len(compiles) == 1

    in_child(child)
