"""Processes as workers: one that dies loses its task."""

import os
import subprocess
import sys
from concurrent.futures import BrokenExecutor

import pytest

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
