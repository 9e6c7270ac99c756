"""Python's search for cyclic garbage, put off while the compiler works.

The compiler makes some hundred thousand objects at a time and drops them soon after. Each such wave
makes Python walk everything that lives in the process, a large model's modules and torch's own
objects too, which can take longer than the compile itself.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Pauses:
    """How many are under way, and whether collection was on before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_on = False


_pauses = _Pauses()


@contextmanager
def collection_paused() -> Generator[None]:
    """Inside, no cyclic garbage is collected, in any thread; pauses may nest and overlap.

    Afterwards collection is on again if it was on before. What was made meanwhile then counts as
    old: most of it is there to stay, and is not searched before the next full collection.
    """
    with _pauses.lock:
        if _pauses.count == 0:
            _pauses.was_on = gc.isenabled()
            gc.disable()
        _pauses.count += 1
    try:
        yield
    finally:
        with _pauses.lock:
            _pauses.count -= 1
            if _pauses.count == 0 and _pauses.was_on:
                if gc.get_freeze_count() == 0:  # else somebody keeps objects out of all collections
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()
