"""Back-off of requests to a server that failed: soon at first, then less and less often."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from kernelmill.core.after_fork import RenewedLock

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 60.0


class BackOff:
    """Pauses after failures: each twice as long as the one before, up to `LONGEST_SECONDS`.

    Each is cut by up to a half at random, so that machines that failed together do not come back
    together. After a failure one caller at a time may ask; the others do without meanwhile.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._chance = clock, chance
        self._held = RenewedLock()
        self._failures = 0
        self._failed = float("-inf")
        self._next = float("-inf")

    @property
    def is_resting(self) -> bool:
        """True while the server must not be asked."""
        return self._clock() < self._next

    def may_ask(self) -> bool:
        """Return whether the caller may ask now; it then has to call `served` or `failed`."""
        with self._held.lock:
            if self.is_resting:
                return False
            if self._failures:
                self._next = self._clock() + self._pause()
            return True

    def served(self) -> None:
        """Record that the server answered."""
        with self._held.lock:
            self._failures = 0
            self._next = float("-inf")

    def failed(self, asked: float) -> None:
        """Record that the server did not answer a request made at time `asked` of the clock."""
        with self._held.lock:
            if asked < self._failed:  # asked together with a request whose failure is counted
                return
            self._failures += 1
            self._failed = self._clock()
            self._next = self._failed + self._pause()

    def now(self) -> float:
        """Return the time of the clock, for `failed`."""
        return self._clock()

    def _pause(self) -> float:
        return pause(self._failures, self._chance())


def pause(failures: int, chance: float) -> float:
    """Return the seconds of pause after so many failures in a row; `chance` is from 0 to 1."""
    longest = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 64), LONGEST_SECONDS)
    return longest * (1 - chance / 2)
