"""Python itself: the supported interpreters (CPython with its global lock), and pauses of garbage
collection and thread switches while the compiler works.

Native code reads and changes Python objects while it holds that lock. A free-threaded build has no
such lock, and another layout of objects, even if it is told to run with a lock.

The compiler makes some hundred thousand objects at a time. Without pauses, garbage collection would
traverse all objects of the process meanwhile, which can take longer than the compile itself.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

from kernelmill.core.after_fork import Overlapping
from kernelmill.core.errors import InterpreterError


def check_interpreter() -> None:
    """Raise InterpreterError if this Python cannot run kernelmill."""
    if "t" in sys.abiflags:
        raise InterpreterError(
            "kernelmill does not run on free-threaded builds of Python (this is one, a "
            '"t" build): use the build with the global interpreter lock of the same version'
        )


check_interpreter()


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


_SECONDS = 0.0005


class _Interval:
    """The switch interval before it was shortened; 0 if it is not."""

    def __init__(self) -> None:
        self.before = 0.0

    def shorten(self) -> None:
        self.before = sys.getswitchinterval()
        sys.setswitchinterval(min(_SECONDS, self.before))

    def restore(self) -> None:
        if self.before:
            sys.setswitchinterval(self.before)
            self.before = 0.0


_interval = _Interval()
_turns = Overlapping(_interval.shorten, _interval.restore)


@contextmanager
def quick_switches() -> Generator[None]:
    """Shorten thread switches inside the context: a thread that returns from LLVM or the disk waits
    half a millisecond for Python, not five: it has ten such waits for each kernel. Uses may nest
    and overlap."""
    with _turns.use():
        yield
