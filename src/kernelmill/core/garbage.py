"""Pauses of Python's cyclic garbage collection while the compiler works.

The compiler makes some hundred thousand objects at a time. Each time Python would traverse all
objects of the process, which can take longer than the compile itself.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from kernelmill.core.after_fork import Overlapping


class _Collection:
    """The collector's state: whether it was on before the first pause; False without one."""

    def __init__(self) -> None:
        self.was_on = False

    def pause(self) -> None:
        self.was_on = gc.isenabled()
        gc.disable()

    def resume(self) -> None:
        if self.was_on:
            if gc.get_freeze_count() == 0:  # else the program keeps objects out of all collections
                gc.freeze()
                gc.unfreeze()
            gc.enable()
            self.was_on = False


_collection = _Collection()
_pauses = Overlapping(_collection.pause, _collection.resume)


@contextmanager
def collection_paused() -> Generator[None]:
    """Collect no cyclic garbage inside the context, in any thread; pauses may nest and overlap.
    Afterwards collection is on again if it was on before. Objects made meanwhile count as old: most
    are there to stay, and are not searched before the next full collection."""
    with _pauses.use():
        yield
