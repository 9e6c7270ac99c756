"""Python's thread switches while the compiler works."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from kernelmill.core.after_fork import Overlapping

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
