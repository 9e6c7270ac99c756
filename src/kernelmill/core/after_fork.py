"""What a fork waits for, and what a forked child puts right before anything else runs in it.

Only the thread that forked comes along. A lock that another one held stays taken, work that another
one had is never finished, and what another one had set for a while stays set. So every module with
a lock, a thread or such a setting registers here how it begins anew: a function for what there is
once, `track` for objects that have a method `after_fork`. They run in the child's one thread,
functions first; none may wait for anything. What a child cannot put right is kept from being
half done: `around_forks`.
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
    """What can be tracked: hashed by identity."""

    def after_fork(self) -> None:
        """Begin anew, in a child."""
        ...


Reset = TypeVar("Reset", bound=Callable[[], None])

_functions: list[Callable[[], None]] = []
_objects: weakref.WeakSet[Forked] = weakref.WeakSet()


def after_fork(function: Reset) -> Reset:
    """Have this called in each child; a decorator."""
    _functions.append(function)
    return function


def track(owner: Forked) -> None:
    """Have `owner.after_fork()` called in each child, as long as somebody has the owner."""
    _objects.add(owner)


class AroundForks(Protocol):
    """What keeps other threads out of something during a fork. It waits for a limited time."""

    def before_fork(self) -> None: ...

    def in_parent(self) -> None: ...

    def in_child(self) -> None: ...


_outer: list[AroundForks] = []
_inner: list[AroundForks] = []


def around_forks(owner: AroundForks, *, first: bool = False) -> None:
    """Have these called around each fork. `first`: before the others, since threads that it waits
    for may need what the others keep them out of."""
    (_outer if first else _inner).append(owner)


def _before() -> None:
    for owner in (*_outer, *_inner):
        owner.before_fork()


def _in_parent() -> None:
    for owner in (*reversed(_inner), *reversed(_outer)):
        owner.in_parent()


def _in_child() -> None:
    for function in _functions:
        function()
    for tracked in list(_objects):
        tracked.after_fork()
    for owner in (*_inner, *_outer):
        owner.in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


class RenewedLock:
    """`lock` is made by `make`, and is another one, which nobody holds, in a child. A thread that
    forks inside of `with renewed.lock` gives the old one back."""

    def __init__(self, make: Callable[[], AbstractContextManager[bool]] = threading.Lock) -> None:
        self._make = make
        self.lock = make()
        track(self)

    def after_fork(self) -> None:
        """A new lock."""
        self.lock = self._make()


class ReentryLock:
    """A lock that knows whether its thread has it already: a signal handler or a finalizer can come
    into the midst of what its own thread does inside, and would wait for itself. It is told so
    instead, and has to leave alone what is half done.

    A child keeps it for its own thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._thread = 0
        track(self)

    @property
    def inside(self) -> bool:
        """Whether this thread has it."""
        return self._thread == threading.get_ident()

    @contextmanager
    def enter(self) -> Generator[bool]:
        """Inside, this thread has it. Gives whether it had not before."""
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
        """A new lock, unless the thread that is left has the old one."""
        if not self.inside:
            self._lock, self._thread = threading.RLock(), 0


class Overlapping:
    """Something that is so while anybody wants it: `begin` when the first comes, `end` when the
    last has gone. Uses may nest, and overlap between threads; a child keeps its own thread's.

    A fork, Ctrl-C and a signal handler's use can come anywhere in `begin` and `end`: `end` must be
    right before, in and after both.
    """

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin, self._end = begin, end
        self._lock = threading.RLock()
        self._users: set[tuple[int, object]] = set()  # with their threads
        track(self)

    @contextmanager
    def use(self) -> Generator[None]:
        """Inside, it is so."""
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
        """Forget the users that are other threads."""
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
