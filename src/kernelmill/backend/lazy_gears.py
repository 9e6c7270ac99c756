"""Gears that are compiled while calls are served: the first call's at once, the others behind it.

A call whose gear has no program yet is served, in this order, by a larger gear that has one, its
arguments padded, where the compiler has proved that this changes nothing; by the program for all
sizes; or it waits until its own gear is compiled. What waits, and what the background does, never
compile at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from kernelmill.compiler import GearCompiler, compile_graph
from kernelmill.core import knobs
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.errors import ConfigError, InputError, StoreError, UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.runtime import background
from kernelmill.runtime.padded_calls import PaddedCalls, smallest_holding
from kernelmill.runtime.program import Program
from kernelmill.torch_internals.dispatch import outside_modes

Call = Callable[..., Any]
Sizes = tuple[int, ...]

_FEWEST = 3
"""Gears that must be left for a program for all sizes to be compiled before them."""

_log = get_logger("backend")


class LazyGears:
    """Serves calls of gears that have no program yet, and has these compiled in the background.

    `padded` runs calls at larger gears, None where that may change a result; `dynamic` is the
    program for all sizes where there is one already.
    """

    def __init__(
        self, compiler: GearCompiler, padded: PaddedCalls | None, dynamic: Call | None
    ) -> None:
        self._compiler, self._padded, self._dynamic = compiler, padded, dynamic
        self._compiling = RenewedLock()
        self._process = 0
        self._background()

    def __call__(self, args: tuple[Any, ...]) -> list[Any] | None:
        """The results of a call whose gear had no program; None when its sizes are no gear's."""
        program = self._compiler.program
        sizes = program.read(args)
        if sizes not in self._compiler.gears:
            return None
        self._background()
        if sizes not in program.table:
            made = self._meanwhile(args)
            if made is not None:
                return made
            self._compile(sizes)
        return program.table[sizes].call(*program.pick(args))

    def larger(self, args: tuple[Any, ...]) -> list[Any] | None:
        """The results of a call whose sizes are no gear's, padded; None when no gear holds them."""
        assert self._padded is not None
        made = self._padded(args)
        if made is not None:
            return made
        gear = smallest_holding(self._compiler.left, self._compiler.program.read(args))
        if gear is None:
            return None
        self._compile(gear)
        return self._padded(args)

    def _meanwhile(self, args: tuple[Any, ...]) -> list[Any] | None:
        """The results by a program that is for other sizes too; None when there is none yet."""
        if self._padded is not None:
            try:
                made = self._padded(args)
            except InputError:  # its own gear says so too, or takes what cannot be padded
                made = None
            if made is not None:
                return made
        return None if self._dynamic is None else self._dynamic(*args)

    def _compile(self, sizes: Sizes) -> None:
        """Compile this gear if nobody has meanwhile."""
        with self._compiling.lock:
            if sizes not in self._compiler.program.table:
                try:
                    outside_modes(lambda: self._compiler.compile([sizes]))
                except (ConfigError, InputError, StoreError):
                    raise
                except Exception as error:
                    if knobs.STRICT.get():
                        raise
                    _log.warning("the gear %s runs in torch: %s", sizes, error)
                    self._compiler.run_eagerly(sizes)

    def _background(self) -> None:
        """Begin with the gears that are left, if that has not begun in this process."""
        if self._process != os.getpid():
            self._process = os.getpid()
            background.submit(self._pieces)

    def _pieces(self) -> Iterator[None]:
        if self._dynamic is None and len(self._compiler.left) >= _FEWEST:
            with self._compiling.lock:
                self._compile_dynamic()
            yield
        batches = self._compiler.batches()
        more = True
        while more:
            with self._compiling.lock:
                more = next(batches, self) is not self
            yield

    def _compile_dynamic(self) -> None:
        try:
            program = compile_graph(self._compiler.graph, self._compiler.config)
        except UnsupportedError as error:
            _log.info("no program for all sizes serves calls meanwhile: %s", error)
            return
        self._dynamic = program.call
        if self._padded is not None and isinstance(program, Program):
            self._padded.offer(program)
