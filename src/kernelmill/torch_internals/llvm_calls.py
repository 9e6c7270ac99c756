"""Calls of LLVM and forks keep out of each other's way.

A process that forks while one of its threads is inside of LLVM leaves the child with locks of LLVM
and llvmlite that nobody gives back, and with tables that are half changed. So a fork waits until
the calls under way have returned, some tens of milliseconds, and no other begins meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kernelmill.torch_internals.llvm import wrapper_lock

PATIENCE_SECONDS = 10.0
"""Longest wait of a fork: a call takes this long only where something is wrong anyway."""


class _Calls:
    """Which threads are inside of calls, and how many forks want them to be out."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.inside: set[int] = set()
        self.forks = 0
        self.wrapped: AbstractContextManager[Any] = nullcontext()

    def before_fork(self) -> None:
        """Wait for the others, and keep them out."""
        self.changed.acquire()
        self.forks += 1
        own = threading.get_ident()
        self.changed.wait_for(lambda: self.inside <= {own}, PATIENCE_SECONDS)
        # All of llvmlite's wrappers take one lock, also those that destructors call in any thread.
        # Without it only those calls can meet a fork.
        self.wrapped = wrapper_lock()
        self.wrapped.__enter__()

    def in_parent(self) -> None:
        """Let the others go on."""
        self.wrapped.__exit__(None, None, None)
        self.forks -= 1
        self.changed.notify_all()
        self.changed.release()

    def in_child(self) -> None:
        """Begin anew: no other thread is here."""
        self.wrapped.__exit__(None, None, None)
        self.inside &= {threading.get_ident()}
        self.forks = 0
        self.changed = threading.Condition(threading.RLock())


_calls = _Calls()
os.register_at_fork(
    before=_calls.before_fork,
    after_in_parent=_calls.in_parent,
    after_in_child=_calls.in_child,
)


@contextmanager
def inside_llvm() -> Generator[None]:
    """Inside, this thread calls LLVM, and no other thread forks. Not to be nested."""
    own = threading.get_ident()
    try:
        with _calls.changed:
            _calls.changed.wait_for(lambda: not _calls.forks)
            _calls.inside.add(own)
        yield
    finally:
        with _calls.changed:
            _calls.inside.discard(own)
            _calls.changed.notify_all()
