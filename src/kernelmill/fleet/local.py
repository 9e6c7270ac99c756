"""A pool of processes on this machine, in which a worker that dies loses one task only."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from multiprocessing import get_context
from typing import Any, TypeVar

from kernelmill.core.errors import KernelmillError

Result = TypeVar("Result")


class LocalPool(Executor):
    """`workers` processes, one for each processor by default, started as tasks come.

    Each is a pool of its own with a thread here that hands it one task after another: a process
    that dies fails the task that it had with BrokenExecutor, and another takes its place. Processes
    are started anew, not forked: torch's threads and locks stay out of them.
    """

    def __init__(self, workers: int | None = None) -> None:
        if _is_imported_by_worker():
            raise KernelmillError(
                "precompile was called again in one of its own workers, which import the script "
                "that began: put the call under `if __name__ == '__main__':`"
            )
        count = len(os.sched_getaffinity(0)) if workers is None else workers
        self._threads = ThreadPoolExecutor(count, "kernelmill-worker")
        self._own = threading.local()
        self._pools: set[ProcessPoolExecutor] = set()

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """As `Executor.submit`; `fn` and its arguments are pickled."""
        return self._threads.submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., Result], args: Any, kwargs: Any) -> Result:
        pool: ProcessPoolExecutor | None = getattr(self._own, "pool", None)
        if pool is None:
            pool = self._own.pool = ProcessPoolExecutor(1, get_context("spawn"))
            self._pools.add(pool)
        try:
            return pool.submit(fn, *args, **kwargs).result()
        except BrokenExecutor:
            self._own.pool = None
            self._pools.discard(pool)
            pool.shutdown(wait=False)
            raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor.shutdown`."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for pool in list(self._pools):
            pool.shutdown(wait, cancel_futures=cancel_futures)


def _is_imported_by_worker() -> bool:
    """Whether the script is run by a worker that was started, which gives it another name."""
    main = sys.modules.get("__mp_main__")
    return main is not None and main.__name__ == "__mp_main__"
