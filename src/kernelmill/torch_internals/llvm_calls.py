"""Calls of LLVM and forks keep out of each other's way.

A process that forks while one of its threads is inside of LLVM leaves the child with locks of LLVM
and llvmlite that nobody gives back, and with tables that are half changed. So a fork waits until
the calls under way have returned, some tens of milliseconds, and no other begins meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kernelmill.core.after_fork import around_forks
from kernelmill.torch_internals.llvm import wrapper_lock

PATIENCE_SECONDS = 10.0
"""Longest wait of a fork: a call takes this long only where something is wrong anyway."""

_LOOK_SECONDS = 0.001


class _Calls:
    """Which threads are inside of calls, and which want the others out to fork.

    Both sides say what they want before they look at the other. There is no lock of Python code,
    which Ctrl-C could leave taken (core/workers.py).
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.forking: dict[int, AbstractContextManager[Any]] = {}
        """The lock of llvmlite that each takes."""

    def before_fork(self) -> None:
        """Wait for the others, and keep them out."""
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
        """Let the others go on."""
        self.forking.pop(threading.get_ident()).__exit__(None, None, None)

    def in_child(self) -> None:
        """Begin anew: no other thread is here."""
        own = threading.get_ident()
        self.forking[own].__exit__(None, None, None)
        self.forking.clear()
        self.inside &= {own}


_calls = _Calls()
around_forks(_calls)


@contextmanager
def inside_llvm() -> Generator[None]:
    """Inside, this thread calls LLVM, and no other thread forks. Not to be nested."""
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
