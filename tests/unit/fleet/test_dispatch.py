"""Tasks to executors: each once, lost workers, workers with another compiler, stores that fail."""

import logging
from concurrent.futures import BrokenExecutor, Executor, Future

import pytest

from kernelmill import codegen
from kernelmill.codegen import key_of
from kernelmill.core.digest import Key
from kernelmill.core.errors import StoreError
from kernelmill.core.target.isa import host_isa
from kernelmill.fleet import dispatch
from kernelmill.fleet.dispatch import ATTEMPTS, Dispatch
from kernelmill.fleet.task import (
    BatchOutcome,
    CompileTask,
    Declined,
    Wanted,
    compile_task,
)
from kernelmill.kernel.text import parse_kernel
from kernelmill.store import Store
from kernelmill.store.remote import SharedStore

KEY = b"k" * 32


def kernel_text(n):
    return (
        f"kernel _(b0: f32[{n}] in, b1: f32[{n}] out) tasks(1) {{\n"
        f"  for i0 = 0 to {n} step 1 {{\n    %0: f32 = load b0[i0]\n    store b1[i0], %0\n  }}\n"
        "}\n"
    )


def wanted(n):
    key = key_of(host_isa(), kernel=kernel_text(n))
    info = {"op_info": {"attrs": {"origin": f"model.py:{n}"}}}
    return Wanted(CompileTask("Copy", key, f"k{n}"), info, {"kernelName": f"k{n}"})


class Here(Executor):
    """Runs tasks in this thread; `before` may raise in place of a worker that is lost."""

    def __init__(self, before=lambda task: None):
        self.before, self.batches = before, []

    @property
    def tasks(self):
        return [task for batch in self.batches for task in batch]

    def submit(self, fn, batch, /):
        future = Future()
        self.batches.append(batch)
        try:
            for task in batch:
                self.before(task)
            future.set_result(fn(batch))
        except Exception as error:
            future.set_exception(error)
        return future


def run(folder, tasks, executor, shared=None):
    told = []
    with Dispatch(executor, Store(folder), shared, lambda p: told.append(p.left)) as running:
        for some in tasks:
            running.take(some)
        running.settle(wait=True)
    assert told[-1] == 0
    return running


def warned(caplog):
    """The one warning that there is."""
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    return warning.getMessage()


@pytest.fixture
def no_llvm(monkeypatch):
    """Compiles that take no time."""
    monkeypatch.setattr(codegen, "compile_kernel", lambda kernel, isa: kernel.name.encode())


def test_a_task_gives_the_object_that_a_compile_here_gives():
    one = wanted(8)
    kernel = parse_kernel(kernel_text(8).replace("kernel _(", "kernel k8("))
    assert compile_task(one.task) == codegen.compile_kernel(kernel, host_isa())


def test_a_driver_is_compiled_from_its_llvm_ir():
    text = "define void @sk() {\n  ret void\n}\n"
    task = CompileTask("sk", key_of(host_isa(), driver=text), "sk")
    assert compile_task(task) == codegen.emit(text, host_isa())


@pytest.mark.parametrize("text", ["kernel _(", kernel_text(4).replace("store b1", "store b2")])
def test_a_text_that_cannot_be_compiled_is_refused(text):
    result = compile_task(CompileTask("Copy", key_of(host_isa(), kernel=text), "k"))
    assert isinstance(result, Declined) and not result.elsewhere


@pytest.fixture
def one_batch(monkeypatch):
    """All that comes at once is one batch."""
    monkeypatch.setattr(dispatch, "batches", lambda tasks, costs, workers: [tuple(tasks)])


@pytest.mark.usefixtures("no_llvm")
def test_equal_tasks_are_one_and_a_second_run_compiles_nothing(tmp_path):
    tasks = [[wanted(1), wanted(2)], [wanted(2), wanted(3)]]
    first = Here()
    done = run(tmp_path / "k", tasks, first)
    assert len(first.tasks) == 3
    assert (done.progress.compiled, done.progress.found, done.failures) == (3, 0, {})
    second = Here()
    done = run(tmp_path / "k", tasks, second)
    assert (second.tasks, done.progress.found) == ([], 3)


@pytest.mark.usefixtures("no_llvm")
def test_a_task_whose_worker_is_lost_is_tried_again(tmp_path):
    lost = []

    def before(task):
        if task.symbol == "k2" and len(lost) < ATTEMPTS - 1:
            lost.append(task)
            raise BrokenExecutor("gone")

    done = run(tmp_path / "k", [[wanted(1), wanted(2)]], Here(before))
    assert len(lost) == ATTEMPTS - 1
    assert (done.progress.compiled, done.failures) == (2, {})


@pytest.mark.usefixtures("no_llvm")
def test_a_task_that_kills_every_worker_fails_alone(tmp_path):
    def before(task):
        if task.symbol == "k2":
            raise BrokenExecutor("gone")

    executor = Here(before)
    done = run(tmp_path / "k", [[wanted(1), wanted(2), wanted(3)]], executor)
    assert [len(b) for b in executor.batches if wanted(2).task in b][-ATTEMPTS:] == [1] * ATTEMPTS
    (failure,) = done.failures.values()
    assert "model.py:2" in failure.what and "lost 3 times" in failure.reason
    assert (done.progress.compiled, done.progress.failed) == (2, 1)


@pytest.mark.usefixtures("no_llvm")
def test_a_kernel_that_kills_workers_is_found_in_its_batch(tmp_path, one_batch):
    def before(task):
        if task.symbol == "k5":
            raise BrokenExecutor("gone")

    executor = Here(before)
    done = run(tmp_path / "k", [[wanted(n) for n in range(1, 9)]], executor)
    (failure,) = done.failures.values()
    assert "model.py:5" in failure.what
    assert (done.progress.compiled, done.progress.failed) == (7, 1)
    lost = [len(batch) for batch in executor.batches if wanted(5).task in batch]
    assert lost == [8, 4, 2] + [1] * ATTEMPTS


@pytest.mark.usefixtures("no_llvm")
def test_what_a_worker_with_another_compiler_is_given_is_compiled_here(tmp_path, caplog):
    class Older(Here):
        def submit(self, fn, batch, /):
            refusal = Declined("llvm 14 where 22 is asked for", True)
            done = BatchOutcome("older", (refusal,) * len(batch), (0.0,) * len(batch))
            return super().submit(lambda _: done, batch)

    done = run(tmp_path / "k", [[wanted(1), wanted(2)]], Older())
    assert (done.progress.compiled, done.failures) == (2, {})
    assert "llvm 14" in warned(caplog)


@pytest.mark.usefixtures("no_llvm")
def test_workers_that_never_answer_are_given_up_soon(tmp_path):
    def before(task):
        raise BrokenExecutor("it never began")

    executor = Here(before)
    done = run(tmp_path / "k", [[wanted(n) for n in range(1, 40)]], executor)
    assert len(done.failures) == 39
    assert any("no worker has ever answered" in f.reason for f in done.failures.values())
    assert len(executor.tasks) < 3 * 39


@pytest.mark.usefixtures("no_llvm")
def test_what_a_worker_without_kernelmill_is_given_is_compiled_here(tmp_path, caplog):
    def before(task):
        raise ModuleNotFoundError("No module named 'kernelmill'")

    executor = Here(before)
    done = run(tmp_path / "k", [[wanted(1), wanted(2)]], executor)
    assert (done.progress.compiled, done.failures) == (2, {})
    assert len(executor.tasks) == 2
    assert "No module named 'kernelmill'" in warned(caplog)


@pytest.mark.usefixtures("no_llvm")
def test_an_executor_that_takes_no_more_work_fails_what_is_left_by_name(tmp_path):
    class Broken(Here):
        """As a ProcessPoolExecutor of which a process died."""

        def submit(self, fn, batch, /):
            if self.batches:
                raise BrokenExecutor("a process died")
            return super().submit(fn, batch)

    tasks = [wanted(1), wanted(2)]
    done = run(tmp_path / "k", [[tasks[0]], [tasks[1]]], Broken())
    assert done.progress.compiled == 1
    (failure,) = done.failures.values()
    assert "model.py:2" in failure.what and "takes no more work" in failure.reason


def test_a_worker_knows_that_its_compiler_is_another():
    task = wanted(1).task
    other = Key.of({**dict(task.key.ingredients), "llvm": "14.0"})
    result = compile_task(CompileTask("Copy", other, "k1"))
    assert isinstance(result, Declined) and result.elsewhere
    assert "where 14.0 is asked for" in result.reason


@pytest.mark.usefixtures("no_llvm")
def test_the_shared_store_is_filled_from_the_folder_and_fills_it(tmp_path):
    url = f"file://{tmp_path}/shared"
    tasks = [[wanted(1), wanted(2)]]
    run(tmp_path / "a", tasks, Here())
    late = Here()
    run(tmp_path / "a", [[*tasks[0], wanted(3)]], late, SharedStore(url, KEY))
    assert [task.symbol for task in late.tasks] == ["k3"]
    other = Here()
    done = run(tmp_path / "b", [[*tasks[0], wanted(3)]], other, SharedStore(url, KEY))
    assert (other.tasks, done.progress.found) == ([], 3)


@pytest.mark.usefixtures("no_llvm")
def test_where_the_system_gives_no_thread_the_shared_store_is_filled_all_the_same(
    tmp_path, monkeypatch
):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("kernelmill.core.workers.start_new_thread", refuse)
    monkeypatch.setattr("threading._start_new_thread", refuse)
    shared = SharedStore(f"file://{tmp_path}/shared", KEY)
    done = run(tmp_path / "a", [[wanted(1), wanted(2)]], Here(), shared)
    assert (done.progress.compiled, done.failures, done.unshared) == (2, {}, 0)
    assert len(list(shared.fetch([wanted(1).task.name, wanted(2).task.name]))) == 2


@pytest.mark.usefixtures("no_llvm")
def test_a_poisoned_entry_is_written_anew(tmp_path):
    url = f"file://{tmp_path}/shared"
    shared = SharedStore(url, KEY)
    run(tmp_path / "a", [[wanted(1), wanted(2)]], Here(), shared)
    (tmp_path / "shared" / wanted(1).task.name).write_bytes(b"poison")
    for folder, compiled in (("b", 1), ("a", 0)):
        executor = Here()
        done = run(tmp_path / folder, [[wanted(1), wanted(2)]], executor, shared)
        assert (len(executor.tasks), done.failures) == (compiled, {})
        assert len(list(shared.fetch([wanted(1).task.name, wanted(2).task.name]))) == 2
        (tmp_path / "shared" / wanted(1).task.name).write_bytes(b"poison")


@pytest.mark.usefixtures("no_llvm")
@pytest.mark.parametrize("broken", ["fetch", "keep"])
def test_a_shared_store_that_does_not_serve_costs_one_warning(
    tmp_path, monkeypatch, caplog, broken
):
    shared = SharedStore(f"file://{tmp_path}/shared", KEY)

    def fail(*_):
        raise StoreError("it does not answer")

    monkeypatch.setattr(shared, broken, fail)
    done = run(tmp_path / "k", [[wanted(1), wanted(2)], [wanted(3)]], Here(), shared)
    assert (done.progress.compiled, done.failures, done.unshared) == (3, {}, 3)
    assert "does not answer" in warned(caplog)


@pytest.mark.usefixtures("no_llvm")
def test_ctrl_c_keeps_what_is_done_and_cancels_the_rest(tmp_path):
    class Waiting(Here):
        """Has done the first task when it is interrupted, and not begun with the others."""

        def submit(self, fn, batch, /):
            future = super().submit(fn, batch) if not waiting else Future()
            waiting.append(future)
            return future

    waiting = []
    running = Dispatch(Waiting(), Store(tmp_path / "k"), None, lambda _: None)
    with pytest.raises(KeyboardInterrupt), running:
        for n in (1, 2, 3):
            running.take([wanted(n)])
        raise KeyboardInterrupt
    assert [future.cancelled() for future in waiting] == [False, True, True]
    executor = Here()
    run(tmp_path / "k", [[wanted(1), wanted(2), wanted(3)]], executor)
    assert {task.symbol for task in executor.tasks} == {"k2", "k3"}
