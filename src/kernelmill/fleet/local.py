"""A pool of processes on this machine, in which a dying worker only loses its own task."""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

from kernelmill.core.errors import KernelmillError
from kernelmill.core.workers import Workers, gives_threads

Result = TypeVar("Result")


class LocalPool(Executor):
    """A pool of `workers` processes, by default one for each processor, which start when needed.

    A thread for each process passes it one task after another. If a process dies, its task fails
    with BrokenExecutor, and another process replaces it. Processes are spawned, not forked, so they
    have none of torch's threads and locks. If the system has no thread or process left, tasks run
    in this process.
    """

    def __init__(self, workers: int | None = None) -> None:
        if _is_imported_by_worker():
            raise KernelmillError(
                "precompile was called again in one of its own workers, which import the script "
                "that began: put the call under `if __name__ == '__main__':`"
            )
        self._threads = Workers(len(os.sched_getaffinity(0)) if workers is None else workers)
        self._own = threading.local()
        self._pools: set[ProcessPoolExecutor] = set()
        self._futures: set[Future[Any]] = set()
        self._is_shut = False

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Submit a task as `Executor.submit`; `fn` and its arguments are pickled."""
        if self._is_shut:
            raise KernelmillError("this pool was shut down: make another")
        future: Future[Result] = Future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        self._threads.submit(partial(self._run, future, partial(fn, *args, **kwargs)))
        return future

    def _run(self, future: Future[Result], task: Callable[[], Result]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(self._in_process(task))
            except BaseException as error:
                future.set_exception(error)

    def _in_process(self, task: Callable[[], Result]) -> Result:
        pool: ProcessPoolExecutor | None = getattr(self._own, "pool", None)
        if pool is None:
            if not gives_threads():
                return task()
            pool = self._own.pool = ProcessPoolExecutor(1, get_context("spawn"))
            self._pools.add(pool)
        try:
            done = pool.submit(task)
        except OSError:  # no process
            self._forget(pool)
            return task()
        except BrokenExecutor:
            self._forget(pool)
            raise
        try:
            return done.result()
        except BrokenExecutor:
            self._forget(pool)
            pool.shutdown(wait=False)
            raise

    def _forget(self, pool: ProcessPoolExecutor) -> None:
        self._own.pool = None
        self._pools.discard(pool)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down as `Executor.shutdown`."""
        if cancel_futures:
            for future in list(self._futures):
                future.cancel()
        self._is_shut = True
        if wait:
            concurrent.futures.wait(list(self._futures))
            self._threads.end()
        for pool in list(self._pools):
            pool.shutdown(wait, cancel_futures=cancel_futures)


def _is_imported_by_worker() -> bool:
    """Return whether a spawned worker runs the script, which has another name there."""
    main = sys.modules.get("__mp_main__")
    return main is not None and main.__name__ == "__mp_main__"


class RayExecutor(Executor):
    """An executor on the cluster that `ray.init` connected to, with the options of `ray.remote`.

    If a worker dies, Ray gives its task to another, up to `max_retries` times. A shutdown leaves
    the cluster running. Raises KernelmillError if Ray is not installed or not connected.
    """

    def __init__(self, **options: Any) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise KernelmillError("Ray is not installed: pip install 'kernelmill[ray]'") from None
        if not ray.is_initialized():
            raise KernelmillError("Ray is not connected: call ray.init() first")
        self._ray = ray
        self._options = {"num_cpus": 1, **options}
        self._remote: dict[Callable[..., Any], Any] = {}
        self._references: set[Any] = set()

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Submit a task as `Executor.submit`."""
        if fn not in self._remote:
            self._remote[fn] = self._ray.remote(**self._options)(fn)
        reference = self._remote[fn].remote(*args, **kwargs)
        self._references.add(reference)
        future: Future[Result] = reference.future()
        future.add_done_callback(lambda _: self._references.discard(reference))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the tasks, or cancel those that have not begun."""
        left = list(self._references)
        if cancel_futures:
            for reference in left:
                self._ray.cancel(reference)
        if wait and left:
            self._ray.wait(left, num_returns=len(left))
