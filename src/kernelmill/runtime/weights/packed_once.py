"""Mutual exclusion of packing: no component is packed by two threads at once, by a call and the
background thread, or by calls of programs that share weights."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import TypeVar

from kernelmill.core.after_fork import after_fork

Made = TypeVar("Made")

_LOOK_SECONDS = 0.001


class _Maker:
    """A thread that makes something. It is forgotten with the frame that holds it, so that Ctrl-C
    is safe anywhere."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = False


_makers: dict[Hashable, weakref.ref[_Maker]] = {}
after_fork(_makers.clear)


def once(key: Hashable, find: Callable[[], Made | None], make: Callable[[], Made]) -> Made:
    """Return the result of `find`, else of `make`, which `find` has to return from then on. While
    another thread makes it, this one waits."""
    mine = _Maker()
    while (found := find()) is None:
        other = _makers.setdefault(key, weakref.ref(mine))()
        if other is mine:
            try:
                return make()
            finally:
                mine.done = True
                _makers.pop(key, None)
        if other is None or other.done:
            _makers.pop(key, None)
        elif other.thread == mine.thread:  # a handler has come into the midst of it
            return make()
        else:
            _look_again()
    return found


def _look_again() -> None:
    time.sleep(_LOOK_SECONDS)
