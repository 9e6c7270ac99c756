"""A progress bar on a terminal, for compiles that take longer than two seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

DELAY_SECONDS = 2.0
_REDRAW_SECONDS = 0.1


class Progress:
    """Counts finished kernels, or `what` else is done; silent when the stream is no terminal.

    The bar is drawn by whoever calls `show`, not by a thread of its own, which a fork would lose;
    and what the program prints meanwhile goes where it always goes.
    """

    def __init__(
        self, stream: TextIO | None = None, doing: str = "compiling", what: str = "kernels"
    ) -> None:
        self._doing = doing
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._next = time.monotonic() + DELAY_SECONDS
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def show(self, done: int, total: int) -> None:
        """Draw the bar in place of the last one; `total` may grow from one to the next."""
        now = time.monotonic()
        if (now < self._next and done < total) or not self._stream.isatty():
            return
        if self._bar is None:
            if now < self._next:
                return
            self._bar = self._started()
            self._task = self._bar.add_task("", total=total)
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total)
        self._bar.refresh()
        self._next = now + _REDRAW_SECONDS

    def _started(self) -> Bar:
        # Imported here: most compiles end before there is something to draw.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        bar = Bar(
            TextColumn(f"kernelmill: {self._doing}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn(self._what),
            TimeRemainingColumn(),
            console=Console(file=self._stream),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            expand=True,
        )
        bar.start()
        return bar

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
