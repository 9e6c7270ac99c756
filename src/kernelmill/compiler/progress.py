"""A progress line of a compile, shown on a terminal and in a notebook after two seconds."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TextIO

from kernelmill.core import knobs
from kernelmill.core.text import printable
from kernelmill.runtime.background import is_worker

DELAY_SECONDS = 2.0
_REDRAW_SECONDS = 0.1
_COLUMNS = 80
_NOTEBOOKS = "ipykernel"
"""The package whose stream is standard error in notebooks: no terminal, but a line can be
redrawn."""

_drawing: dict[int, ProgressLine] = {}
"""The progress line of this process, by process id: a forked child has another one."""


class ProgressLine:
    """A count of finished kernels, or of other work (`what`); silent where no terminal or notebook
    shows it, where KERNELMILL_PROGRESS is 0 and in the background.

    The caller of `show` draws the line, not a thread of its own, which a fork would lose. Of
    compiles in several threads the first draws. Errors of the stream are ignored.
    """

    def __init__(
        self, stream: TextIO | None = None, doing: str = "compiling", what: str = "kernels"
    ) -> None:
        self._doing, self._what = doing, what
        self._stream = sys.stderr if stream is None else stream
        self._wanted, self._shown = knobs.PROGRESS.get(), 0
        self._begin = time.monotonic()
        self._next = self._begin + DELAY_SECONDS

    @property
    def is_due(self) -> bool:
        """True if it is time to draw."""
        return self._wanted and time.monotonic() >= self._next

    def show(self, done: int, total: int, name: str = "") -> None:
        """Draw the line over the last one. `total` may grow between calls; `name` is that of the
        program being compiled."""
        if not self.is_due or not self._is_seen():
            return
        now = time.monotonic()
        self._next = now + _REDRAW_SECONDS
        whose = f" {printable(name)}" if name else ""
        spent = f"{now - self._begin:.0f} s"
        self._draw(f"kernelmill: {self._doing}{whose}: {done} of {total} {self._what}, {spent}")

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            self._draw("")
            self._write("\r")
        if _drawing.get(os.getpid()) is self:
            del _drawing[os.getpid()]

    def _is_seen(self) -> bool:
        return (
            (_is_notebook(self._stream) or _is_terminal(self._stream))
            and not is_worker()
            and _drawing.setdefault(os.getpid(), self) is self
        )

    def _draw(self, line: str) -> None:
        line = line[: _columns(self._stream) - 1]
        self._write(f"\r{line}{' ' * (self._shown - len(line))}")
        self._shown = len(line)

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # it has hung up or is closed, or lacks a character
            self._stream.write(text)
            self._stream.flush()


def _is_notebook(stream: object) -> bool:
    return type(stream).__module__.partition(".")[0] == _NOTEBOOKS


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal on which a line can be redrawn."""
    try:
        is_terminal = stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False
    return is_terminal and knobs.of_others(("TERM",)).get("TERM") != "dumb"


def _columns(stream: TextIO) -> int:
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    return _COLUMNS
