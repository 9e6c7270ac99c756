"""Calls of a graph that is compiled in the background: torch runs it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernelmill.runtime import background
from kernelmill.torch_internals.dispatch import outside_modes

Call = Callable[..., Any]


class BackgroundCalls:
    """A graph run by torch until it is compiled in the background, then by the result of `compile`.

    The compile begins after the first call. Where `compile` raises, later calls compile themselves,
    and raise its error until its cause is removed.
    """

    def __init__(self, compile: Callable[[], Call], in_torch: Call) -> None:
        self._compile, self._in_torch = compile, in_torch
        self._run: Call = self._meanwhile
        self._begun = background.Begun(self._pieces)

    def __call__(self, *args: Any) -> Any:
        """Run the graph."""
        return self._run(*args)

    def _meanwhile(self, *args: Any) -> Any:
        results = self._in_torch(*args)
        self._begun.submit()  # after the first answer, which would share its core with the compile
        return results

    def _pieces(self) -> Iterator[None]:
        try:
            self._use(self._compile())
        except Exception:  # the next call meets it, when it tries itself
            self._run = self._at_once
        yield

    def _at_once(self, *args: Any) -> Any:
        self._use(outside_modes(self._compile))
        return self._run(*args)

    def _use(self, run: Call) -> None:
        # Callers may be on their way to any of these. The graphs go that nothing else needs, and
        # work that two callers have submitted is done once.
        self._run = self._in_torch = run
        self._compile = lambda: run
