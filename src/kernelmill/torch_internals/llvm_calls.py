"""Mutual exclusion of calls of LLVM and forks.

A process that forks while one of its threads is inside of LLVM leaves the child with locks of LLVM
and llvmlite that nobody releases, and with tables that are half changed. So a fork waits until
pending calls have returned, some tens of milliseconds, and no other begins meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kernelmill.torch_internals.llvm import wrapper_lock

PATIENCE_SECONDS = 10.0
"""Longest wait of a fork: a call takes this long only where something is wrong anyway."""

_LOOK_SECONDS = 0.001


class _Calls:
    """Threads inside of calls, and threads that are about to fork.

    Both sides announce themselves before they look at the other. There is no lock of Python code,
    which Ctrl-C could leave taken (core/workers.py).
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.forking: dict[int, AbstractContextManager[Any]] = {}
        """The lock of llvmlite held by each thread that forks."""

    def before_fork(self) -> None:
        """Wait for calls of other threads, and block new ones."""
        own = threading.get_ident()
        self.forking[own] = nullcontext()
        end = time.monotonic() + PATIENCE_SECONDS
        while self.inside - {own} and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        # All of llvmlite's wrappers take one lock, also those that destructors call in any thread.
        # Without it only those calls can meet a fork.
        self.forking[own] = wrapper_lock()
        self.forking[own].__enter__()

    def in_parent(self) -> None:
        """Let other threads call LLVM again."""
        self.forking.pop(threading.get_ident()).__exit__(None, None, None)

    def in_child(self) -> None:
        """Reset the state: the child has no other thread."""
        own = threading.get_ident()
        self.forking[own].__exit__(None, None, None)
        self.forking.clear()
        self.inside &= {own}


_calls = _Calls()
os.register_at_fork(
    before=_calls.before_fork,
    after_in_parent=_calls.in_parent,
    after_in_child=_calls.in_child,
)


@contextmanager
def inside_llvm() -> Generator[None]:
    """Let this thread call LLVM, and no other thread fork. Not to be nested."""
    own = threading.get_ident()
    try:
        _calls.inside.add(own)
        while _calls.forking.keys() - {own}:
            _calls.inside.discard(own)
            time.sleep(_LOOK_SECONDS)
            _calls.inside.add(own)
        yield
    finally:
        _calls.inside.discard(own)
