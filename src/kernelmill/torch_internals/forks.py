"""Repair of Dynamo's and import locks in a forked child, where other threads held these at the
fork."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

from kernelmill.core.after_fork import after_fork
from kernelmill.torch_internals.registry import internal


@internal(
    "forks.import_locks",
    reason="imports in a child that was forked while another thread imported the same module",
    fallback="such a child waits for ever",
    in_callers_modes=True,
)
def import_locks() -> dict[str, Callable[[], Any]] | None:
    """Return Python's locks of modules being imported, as weak references."""
    bootstrap: Any = getattr(importlib, "_bootstrap")  # noqa: B009
    lock = bootstrap._get_module_lock("kernelmill.probe")
    lock.acquire()
    own = lock.owner == threading.get_ident()
    lock.release()
    locks: dict[str, Callable[[], Any]] = bootstrap._module_locks
    return locks if own and locks["kernelmill.probe"]() is lock else None


@internal(
    "forks.dynamo",
    reason="compiled functions in a child that was forked while another thread compiled or called",
    fallback="such a child may wait for ever when it compiles or calls one",
    in_callers_modes=True,
)
def dynamo() -> Any:
    """Return Dynamo, with its compile lock, its lock of callbacks, and its compiled functions, each
    of which has a lock for its guards."""
    from torch import _dynamo

    found: Any = _dynamo
    type(found.callback_handler)(start_callbacks=[], end_callbacks=[])
    known = type(found.convert_frame.compile_lock) is type(threading.RLock())
    return found if known and callable(found.reset_code_caches) else None


class _Threads:
    """Fork handlers. `inside` is set if at the fork other threads, but not this one, were inside of
    a function from torch.compile."""

    def __init__(self) -> None:
        self.inside = False

    def before_fork(self) -> None:
        """Find threads inside of Dynamo, and run the probes, which could block in a child."""
        import_locks.get()
        if "torch._dynamo" not in sys.modules or (found := dynamo.get()) is None:
            return
        file = found.eval_frame.__file__
        inside = {thread for thread, frame in sys._current_frames().items() if _in(frame, file)}
        self.inside = bool(inside) and threading.get_ident() not in inside

    def in_child(self) -> None:
        """Replace the locks that other threads held."""
        _begin_imports_anew()
        if "torch._dynamo" not in sys.modules or (found := dynamo.get()) is None:
            return
        found.convert_frame.compile_lock = threading.RLock()
        if self.inside:
            handler = found.callback_handler
            handler.__init__(handler.start_callbacks, handler.end_callbacks)
            # The locks of guards are not Python's, and cannot be renewed.
            found.reset_code_caches()


def _in(frame: FrameType | None, file: str) -> bool:
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame is not None


def _begin_imports_anew() -> None:
    locks, own = import_locks.get() or {}, threading.get_ident()
    for name, reference in list(locks.items()):
        if (lock := reference()) is not None and lock.owner not in (None, own):
            del locks[name]
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]  # half of it ran


@cache
def watch_forks() -> None:
    """Register the fork handlers, once."""
    threads = _Threads()
    os.register_at_fork(before=threads.before_fork)
    after_fork(threads.in_child)
