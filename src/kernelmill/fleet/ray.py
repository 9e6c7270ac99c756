"""Ray's workers as a `concurrent.futures.Executor`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from kernelmill.core.errors import KernelmillError

Result = TypeVar("Result")


class RayExecutor(Executor):
    """An executor on the cluster that `ray.init` connected to, with the options of `ray.remote`.

    A task whose worker dies is given to another by Ray itself, `max_retries` times. A shutdown
    leaves the cluster running. KernelmillError where Ray is not installed or not connected.
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
