"""Locks between the threads of a process, and between processes.

Between processes a lock is `flock` on a file that exists only during a compile. The system releases
it the moment its owner dies, so a takeover needs no time-out. Waiting is limited all the same
(`patience`): an owner that was stopped, not killed, must not stop all others. After that a process
continues without the lock, which costs a second compile and breaks nothing, since files appear by
rename.
"""

from __future__ import annotations

import fcntl
import io
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kernelmill.core.after_fork import after_fork, track

_POLL_SECONDS = 0.002


class ThreadLocks:
    """A lock for each name, among the threads of this process."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        track(self)

    @contextmanager
    def lock(self, name: str, patience: float) -> Generator[bool, None, None]:
        """Hold the name's lock, or continue without after `patience` seconds; True: had to wait."""
        lock = self._locks.setdefault(name, threading.Lock())
        held = lock.acquire(blocking=False)
        waited = not held
        if waited:
            held = lock.acquire(timeout=patience)
        try:
            yield waited
        finally:
            if held:
                lock.release()

    def after_fork(self) -> None:
        """Forget all locks."""
        self._locks = {}


class FileLock(NamedTuple):
    """The state of a lock file. `waited`: another owner had it first. `stale`: the file existed
    already, so its maker may have died and left other files behind."""

    waited: bool
    stale: bool


@contextmanager
def file_lock(folder: int, filename: str, patience: float) -> Generator[FileLock, None, None]:
    """Hold the lock file `filename` of the open folder `folder`; see the module's text. OSError
    when the folder cannot be written or the file system has no locks."""
    deadline = time.monotonic() + patience
    waited = stale = False
    file: io.FileIO | None = None
    while file is None and (not waited or time.monotonic() < deadline):
        file, existed = _try_lock(folder, filename)
        stale |= existed
        if file is None:
            waited = True
            time.sleep(_POLL_SECONDS)
    try:
        yield FileLock(waited, stale)
    finally:
        if file is not None and not file.closed:
            # While the lock is held: who waits on this file finds that the name is gone, and starts
            # over with a new one.
            _unlink_quietly(folder, filename)
            _HELD.discard(file)
            file.close()


def _try_lock(folder: int, filename: str) -> tuple[io.FileIO | None, bool]:
    """Return (the locked file or None, whether it existed before)."""
    existed = False

    def opener(path: str, _: int) -> int:
        nonlocal existed
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(path, flags | os.O_EXCL, 0o600, dir_fd=folder)
        except FileExistsError:
            existed = True
            return os.open(path, flags, 0o600, dir_fd=folder)

    file = io.FileIO(filename, "r+", opener=opener)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named = os.stat(filename, dir_fd=folder, follow_symlinks=False)
        if os.path.samestat(os.fstat(file.fileno()), named):
            _HELD.add(file)
            return file, existed
    except (BlockingIOError, FileNotFoundError):
        pass  # another has it, or has just removed it
    except BaseException:
        file.close()
        raise
    file.close()
    return None, existed


def _unlink_quietly(folder: int, filename: str) -> None:
    with suppress(OSError):  # the folder may have been cleaned
        os.unlink(filename, dir_fd=folder)


_HELD: set[io.FileIO] = set()


@after_fork
def _let_go() -> None:
    """Close the parent's lock files in a child, which owns none and must not keep them alive."""
    for file in _HELD:
        file.close()
    _HELD.clear()
