"""Worker threads, which Ctrl-C always ends.

Python raises KeyboardInterrupt in the first thread between any two instructions, also when
`__enter__` has taken a lock and the `with` that would release it has not begun. So the two sides
share no lock, only queues and a set, whose methods in C are atomic.
"""

from __future__ import annotations

import time
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from kernelmill.core.after_fork import track

Result = TypeVar("Result")


def gives_threads() -> bool:
    """Return whether the system lets this process start another thread now."""
    try:
        start_new_thread(time.monotonic, ())
    except RuntimeError:
        return False
    return True


class WorkItem(Generic[Result]):
    """A piece of submitted work."""

    def __init__(self) -> None:
        self.is_done = False
        """True once it has returned or raised."""
        self.error: BaseException | None = None
        """The error that it raised, if any."""
        self._result: Result | None = None

    def result(self) -> Result:
        """Return the result of the work. Raises its error, and RuntimeError if it is not done."""
        if not self.is_done:
            raise RuntimeError("this work is not done")
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]

    def do(self, work: Callable[[], Result]) -> None:
        """Run the work, and keep its result or error."""
        try:
            self._result = work()
        except BaseException as error:
            self.error = error
        self.is_done = True


class Workers:
    """Up to `most` threads, which take submitted work in order.

    Where the system starts no thread at all, `submit` does the work itself. To be used in `with` by
    one thread: leaving it waits for the work in progress, also when Ctrl-C comes meanwhile; pending
    work is dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ended = False
        self._empty()
        track(self)

    def _empty(self) -> None:
        self._started = 0
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._under_way: set[Callable[[], None]] = set()
        self._finished: SimpleQueue[None] = SimpleQueue()

    def after_fork(self) -> None:
        """Forget work and threads, which are the parent's (core/after_fork.py)."""
        self._empty()
        self._ended = True

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        except BaseException:
            # Ctrl-C: work in progress holds locks and files until it is done, which is soon.
            self.end()
            raise

    def submit(self, work: Callable[[], Result]) -> WorkItem[Result]:
        """Queue the work for a thread, and return its job."""
        job = WorkItem[Result]()
        self._waiting.put(partial(job.do, work))
        if self._started < self._most:
            self._started += 1  # before it could be interrupted
            try:
                start_new_thread(self._run, ())  # `Thread.start` waits in Python code
            except RuntimeError:  # the system gives no more: those there are do it
                self._started -= 1
                if not self._started:
                    job.do(work)
                    self._waiting.get()
        return job

    def wait(self, jobs: Iterable[WorkItem[Result]], seconds: float | None = None) -> None:
        """Wait until all of these jobs are done, one has raised, or `seconds` are over."""
        end = None if seconds is None else time.monotonic() + seconds
        left = list(jobs)
        while left := [job for job in left if not job.is_done or job.error is not None]:
            if any(job.error is not None for job in left):
                return
            remaining = None if end is None else max(end - time.monotonic(), 0.0)
            try:
                self._finished.get(timeout=remaining)
            except Empty:
                return

    def results(self, works: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """Yield the result of each work, in order. Raises the error of one that fails."""
        for job in [self.submit(work) for work in works]:
            self.wait([job])
            yield job.result()

    def end(self) -> None:
        """Wait for the work in progress. Pending work is dropped."""
        self._ended = True  # before it looks
        while self._under_way:
            self._finished.get()
        for _ in range(self._started):
            self._waiting.put(None)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            self._under_way.add(work)  # before it looks
            if not self._ended:
                work()
            self._under_way.discard(work)
            self._finished.put(None)
