"""The part of the processors' time that other processes take during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
_IDLE = slice(3, 5)
_COUNTED = 8  # guests are counted as users too (proc(5))


class OtherWork:
    """A measurement, from now on, of the processors that this process may run on."""

    def __init__(self) -> None:
        self._begin = _times()

    def share(self) -> float | None:
        """Return the part of their time that was neither this process's nor idle; None where the
        system does not report it."""
        if self._begin is None or (end := _times()) is None:
            return None
        total, busy, own = (b - a for a, b in zip(self._begin, end, strict=True))
        return min(1.0, max(0.0, busy - own) / total) if total > 0 else None


def _times() -> tuple[float, float, float] | None:
    """Return seconds: all of the processors, those that were not idle, and this process's."""
    try:
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in STAT.read_text().splitlines()]
        found = [list(map(int, words[1:][:_COUNTED])) for words in lines if words[0] in ours]
    except (OSError, ValueError, IndexError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    total, idle = sum(map(sum, found)), sum(sum(numbers[_IDLE]) for numbers in found)
    return total / ticks, (total - idle) / ticks, time.process_time()
