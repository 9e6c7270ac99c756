"""Repairs in a forked child before anything else runs in it.

The child only has the forking thread, but locks and temporary settings of others stay. So every
module with a lock, a thread or such a setting registers a repair here: a function, or `track` for
objects with a method `after_fork`. Functions run first; none may wait.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar


class Forked(Protocol):
    """An object that can be tracked: hashed by identity."""

    def after_fork(self) -> None:
        """Reset its state in a child."""
        ...


Reset = TypeVar("Reset", bound=Callable[[], None])

_functions: list[Callable[[], None]] = []
_objects: weakref.WeakSet[Forked] = weakref.WeakSet()


def after_fork(function: Reset) -> Reset:
    """Register a function to be called in each child; a decorator."""
    _functions.append(function)
    return function


def track(owner: Forked) -> None:
    """Have `owner.after_fork()` called in each child, as long as the owner lives."""
    _objects.add(owner)


def _run() -> None:
    for function in _functions:
        function()
    for owner in list(_objects):
        owner.after_fork()


os.register_at_fork(after_in_child=_run)


class RenewedLock:
    """A lock that is replaced by a new, free one, made by `make`, in a child. A thread that forks
    inside of `with renewed.lock` releases the old one."""

    def __init__(self, make: Callable[[], AbstractContextManager[bool]] = threading.Lock) -> None:
        self._make = make
        self.lock = make()
        track(self)

    def after_fork(self) -> None:
        """Replace the lock."""
        self.lock = self._make()


class ReentryLock:
    """A lock that knows whether its thread holds it already: a signal handler or a finalizer can
    interrupt its own thread inside, and would wait for itself. `enter` tells it so instead, and it
    must not touch half-done state. A child keeps the lock for its own thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._thread = 0
        track(self)

    @property
    def inside(self) -> bool:
        """True if this thread holds the lock."""
        return self._thread == threading.get_ident()

    @contextmanager
    def enter(self) -> Generator[bool]:
        """Hold the lock inside the context, which is True unless this thread held it before."""
        with self._lock:
            if self.inside:
                yield False
                return
            try:
                self._thread = threading.get_ident()
                yield True
            finally:
                self._thread = 0

    def after_fork(self) -> None:
        """Replace the lock, unless the remaining thread holds the old one."""
        if not self.inside:
            self._lock, self._thread = threading.RLock(), 0


class Overlapping:
    """A state that holds while anybody uses it: `begin` is called with the first use, `end` after
    the last. Uses may nest, and overlap between threads; a child keeps its own thread's. A fork,
    Ctrl-C and a signal handler's use can interrupt `begin` and `end`: `end` must be right before,
    in and after both."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin, self._end = begin, end
        self._lock = threading.RLock()
        self._users: set[tuple[int, object]] = set()  # with their threads
        track(self)

    @contextmanager
    def use(self) -> Generator[None]:
        """Hold the state inside the context."""
        user = threading.get_ident(), object()
        try:  # Ctrl-C can come anywhere
            with self._lock:
                first = not self._users
                self._users.add(user)
                if first:
                    self._begin()
            yield
        finally:
            with self._lock:
                if self._users <= {user}:
                    self._end()
                self._users.discard(user)

    def after_fork(self) -> None:
        """Forget the uses of other threads."""
        self._lock = threading.RLock()
        thread = threading.get_ident()
        own = {user for user in self._users if user[0] == thread}
        if self._users and not own:
            self._end()
        self._users = own


@after_fork
def _renew_properties() -> None:
    # Up to Python 3.11 a cached_property has one lock for all objects of its class: torch's tracer
    # has some, which another thread may hold that was compiling.
    if not hasattr(functools.cached_property(len), "lock"):
        return
    packages = (__name__.partition(".")[0], "torch")
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            for kind in list(getattr(module, "__dict__", {}).values()):
                # By `type`, as some objects of torch warn when asked for their `__class__`.
                if issubclass(type(kind), type) and kind.__module__ == name:
                    for value in list(vars(kind).values()):
                        if type(value) is functools.cached_property:
                            value.lock = threading.RLock()  # type: ignore[attr-defined]
