"""Processes as workers: one that dies loses its task."""

import os
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor

import pytest

from kernelmill.core.errors import KernelmillError
from kernelmill.fleet import LocalPool


def test_a_worker_that_dies_fails_its_task_and_is_replaced():
    pool = LocalPool(1)
    try:
        first = pool.submit(os.getpid)
        lost = pool.submit(os._exit, 1)
        after = pool.submit(os.getpid)
        assert first.result() not in (os.getpid(), after.result())
        with pytest.raises(BrokenExecutor):
            lost.result()
    finally:
        pool.shutdown()


def test_workers_import_neither_torch_nor_the_models():
    pool = LocalPool(1)
    try:
        modules = pool.submit(_loaded).result()
    finally:
        pool.shutdown()
    assert "kernelmill.fleet.task" in modules
    assert not {"torch", "kernelmill.frontend", "kernelmill.runtime"} & modules


def test_where_the_system_gives_no_thread_tasks_are_done_in_this_process(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("kernelmill.core.workers.start_new_thread", refuse)
    monkeypatch.setattr("threading._start_new_thread", refuse)
    pool = LocalPool(2)
    assert [pool.submit(os.getpid).result() for _ in range(3)] == [os.getpid()] * 3
    assert isinstance(pool.submit(int, "x").exception(), ValueError)
    pool.shutdown()
    with pytest.raises(KernelmillError, match="was shut down"):
        pool.submit(abs, -1)


def test_where_the_system_gives_no_process_tasks_are_done_in_this_one(monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", refuse)
    pool = LocalPool(1)
    assert [pool.submit(os.getpid).result() for _ in range(2)] == [os.getpid()] * 2
    pool.shutdown()


def test_tasks_that_have_not_begun_can_be_cancelled(tmp_path):
    pool = LocalPool(1)
    first = pool.submit(_waits_for, tmp_path / "begun", tmp_path / "go")
    others = [pool.submit(abs, -n) for n in range(20)]
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    (tmp_path / "go").touch()
    pool.shutdown(cancel_futures=True)
    assert first.result() == "went" and others[-1].cancelled()


def _waits_for(begun, path):
    begun.touch()
    while not path.exists():
        time.sleep(0.01)
    return "went"


def _loaded():
    import kernelmill.fleet.task  # noqa: F401

    return {name for name in sys.modules if name.split(".")[0] in ("torch", "kernelmill")}


def test_a_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from kernelmill.fleet import LocalPool\n"
        "pool = LocalPool(1)\n"
        "print(type(pool.submit(abs, -1).exception()).__name__)\n"
        "pool.shutdown()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "BrokenProcessPool\n"
    assert "put the call under `if __name__ == '__main__':`" in done.stderr
