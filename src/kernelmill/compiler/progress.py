"""A progress bar on a terminal, for compiles that take longer than a second."""

from __future__ import annotations

import sys
import time
from typing import TextIO

DELAY_SECONDS = 1.0
_WIDTH = 30


class Progress:
    """Counts finished kernels, or `what` else is done; silent when the stream is no terminal."""

    def __init__(
        self, stream: TextIO | None = None, doing: str = "compiling", what: str = "kernels"
    ) -> None:
        self._doing = doing
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._from = time.monotonic() + DELAY_SECONDS
        self._drawn = False

    def show(self, done: int, total: int) -> None:
        """Draw the bar in place of the last one; `total` may grow from one to the next."""
        if time.monotonic() < self._from or not self._stream.isatty():
            return
        full = _WIDTH * done // max(1, total)
        bar = "#" * full + "." * (_WIDTH - full)
        self._stream.write(f"\rkernelmill: {self._doing} [{bar}] {done}/{total} {self._what}")
        self._stream.flush()
        self._drawn = True

    def close(self) -> None:
        """Remove the bar."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
