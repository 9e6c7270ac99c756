"""How Python's threads take turns while the compiler works."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

_SECONDS = 0.0005


class _Turns:
    """How many want quick ones, and what was set before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.before = 0.0


_turns = _Turns()


@contextmanager
def quick_switches() -> Generator[None]:
    """Inside, a thread that comes back from LLVM or the disk waits half a millisecond for Python,
    not five: it has ten such waits for each kernel. Uses may nest and overlap.
    """
    with _turns.lock:
        if _turns.count == 0:
            _turns.before = sys.getswitchinterval()
            sys.setswitchinterval(min(_SECONDS, _turns.before))
        _turns.count += 1
    try:
        yield
    finally:
        with _turns.lock:
            _turns.count -= 1
            if _turns.count == 0:
                sys.setswitchinterval(_turns.before)
