"""A fork waits until no other thread is inside of Dynamo or imports a module.

Whoever forks while another thread holds Dynamo's lock, or the lock of a module that it imports,
leaves the child with one that nobody gives back: a child that compiles or imports waits for ever.
Compilers import much, and late. The lock of Dynamo is renewed where the wait was too short
(dynamo.py); what was half done stays so then.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kernelmill.torch_internals.dynamo import compile_lock
from kernelmill.torch_internals.registry import internal

COMPILE_SECONDS = 1.0
"""Longest wait of a fork for a compile."""

IMPORT_SECONDS = 10.0
"""Longest wait for imports, which nothing but their end helps."""

_LOOK_SECONDS = 0.001


@internal(
    "quiet_forks.import_locks",
    reason="forks while another thread imports a module",
    fallback="a child that was forked then waits for ever when it imports the same module",
    in_callers_modes=True,
)
def import_locks() -> Callable[[], set[int]] | None:
    """The threads that import something."""
    bootstrap: Any = getattr(importlib, "_bootstrap")  # noqa: B009
    known: dict[str, Callable[[], Any]] = bootstrap._module_locks

    def threads() -> set[int]:
        locks = [reference() for reference in list(known.values())]
        return {lock.owner for lock in locks if lock is not None and lock.owner is not None}

    lock = bootstrap._get_module_lock(__name__ + ".probe")
    lock.acquire()
    try:
        found = threading.get_ident() in threads()
    finally:
        lock.release()
    return threads if found else None


class QuietForks:
    """Give it to `around_forks`, as the first."""

    def __init__(self) -> None:
        self._held: dict[int, list[Any]] = {}

    def before_fork(self) -> None:
        """Wait for other threads, and keep them from compiling."""
        held: list[Any] = []
        self._held[threading.get_ident()] = held
        self._wait_for_imports()
        module = compile_lock.get() if "torch._dynamo.convert_frame" in sys.modules else None
        if module is not None:
            lock: Any = module.compile_lock
            if lock.acquire(timeout=COMPILE_SECONDS):
                held.append(lock)
            self._wait_for_imports()

    def _wait_for_imports(self) -> None:
        importing, own = import_locks.get(), threading.get_ident()
        if importing is None:
            return
        end = time.monotonic() + IMPORT_SECONDS
        # Others may wait for what this thread imports.
        while (found := importing()) and own not in found and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)

    def in_parent(self) -> None:
        """Let the others go on."""
        for lock in self._held.pop(threading.get_ident()):
            lock.release()

    def in_child(self) -> None:
        """Begin anew: no other thread is here."""
        self.in_parent()
        self._held.clear()
