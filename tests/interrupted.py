"""Ctrl-C or a signal handler at a chosen instruction, as a test of what it leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def ctrl_c() -> None:
    raise KeyboardInterrupt


class Interrupt:
    """Does something at one instruction of this thread in code of some files, as a signal handler
    would: raises KeyboardInterrupt, or what else it is told."""

    def __init__(
        self, at: int, files: tuple[str | None, ...], act: Callable[[], object] = ctrl_c
    ) -> None:
        self.left = at
        self._files, self._act = files, act

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and self.left >= 0:
            self.left -= 1
            if self.left < 0:
                self._act()
        return self._trace

    @contextmanager
    def on(self) -> Generator[None]:
        before = sys.gettrace()
        # Python 3.12 tells of instructions only if a frame has asked for that before.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
