"""Background work: one thread of low priority, which ends with the process.

Work consists of pieces of some milliseconds. No piece starts while a caller has the worker
`paused`, so that they do not compete. Python's exit waits for the current piece, which may run
machine code and read weights that are about to be freed. A forked process has no work; callers have
to submit theirs again (`os.getpid`).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from queue import SimpleQueue

from kernelmill.core.after_fork import Overlapping, after_fork
from kernelmill.core.log import get_logger

Work = Callable[[], Iterator[None]]
"""A function that begins some work; each step of its iterator is a piece of it."""

_THREAD = "kernelmill background"
_NICENESS = 5
_LOOK_SECONDS = 0.002
_log = get_logger("runtime")


def submit(work: Work) -> None:
    """Run `work` on the background thread, after all that was submitted before."""
    _worker().submit(work)


def is_worker() -> bool:
    """Return whether the current thread is the background worker."""
    return threading.current_thread().name == _THREAD


class Begun:
    """A background task that is submitted on first demand, and again in a forked child."""

    def __init__(self, work: Work) -> None:
        self._work, self._process = work, 0

    def submit(self) -> None:
        """Submit the task, unless that has been done in this process."""
        if self._process != os.getpid():
            self._process = os.getpid()
            submit(self._work)


@contextmanager
def paused() -> Generator[None]:
    """Let no piece of background work begin inside the context. Uses may nest and overlap."""
    with _callers.use():
        yield


def wait() -> None:
    """Wait until all work submitted so far is done, or Python ends."""
    done = SimpleQueue[None]()

    def work() -> Iterator[None]:
        done.put(None)
        yield

    worker = _worker()
    worker.submit(work)
    if worker.works:
        done.get()


class _Gate:
    """A gate that the worker passes unless it is paused. It has no lock, which Ctrl-C in a caller
    could leave taken (core/workers.py): the worker polls while it is closed."""

    def __init__(self) -> None:
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def open(self) -> None:
        self._closed = False

    def pass_through(self) -> None:
        while self._closed:
            time.sleep(_LOOK_SECONDS)


_gate = _Gate()
_callers = Overlapping(_gate.close, _gate.open)


class _Worker:
    """The background thread and its queue. `works`: the thread has been started."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._piece = threading.Lock()
        self.works = self._told = False
        self._process = os.getpid()
        atexit.register(self._stop)
        self._start()

    def submit(self, work: Work) -> None:
        """Queue `work`. Without a thread it waits until one can be started."""
        self._queue.put(work)
        if not self.works:
            self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, name=_THREAD, daemon=True).start()
            self.works = True
        except RuntimeError as error:  # the system gives none, or Python ends
            if not self._told:
                self._told = True
                _log.warning("%s: work that no call waits for is put off", error)

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # of this thread alone, where threads have one
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while True:
            work = self._queue.get()
            try:
                pieces = work()
                more = True
                while more:
                    _gate.pass_through()
                    with self._piece:
                        more = next(pieces, self) is not self
            except Exception:
                _log.exception("work that nobody waits for has failed: it is done when needed")
            del work

    def _stop(self) -> None:
        if self._process == os.getpid():  # else there is no thread, and it may have had the lock
            self._piece.acquire()  # and never let go of: no further piece begins
        self.works, self._told = False, True


@cache
def _worker() -> _Worker:
    return _Worker()


@after_fork
def _forget_thread() -> None:
    _worker.cache_clear()
