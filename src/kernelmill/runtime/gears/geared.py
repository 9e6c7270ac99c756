"""A program for each gear, and dispatch between them by the sizes of a call."""

from __future__ import annotations

import operator
from collections.abc import Callable, MutableMapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import InputError
from kernelmill.runtime.calls.caller import Call, Pick, argument_picker
from kernelmill.runtime.memory.dims import SizeSource, size_reader


class Callee(Protocol):
    """A compiled program."""

    @property
    def call(self) -> Call: ...


Refuse = Callable[[tuple[Any, ...], Exception | None], Any]
"""Answers a call that no gear accepts: it raises, or returns results by other means. The exception
is that of the chosen gear, if it refused an argument."""


@dataclass(frozen=True, eq=False)
class GearedProgram:
    """Programs by size. `table` has the program for each tuple of sizes, which `sources` read from
    the arguments; `symbols` are those dims (one symbol each, as a rule). `arguments` are the
    positions of those arguments, of `count`, that programs take. Programs may be added during
    calls."""

    sources: tuple[SizeSource, ...]
    symbols: tuple[str, ...]
    table: MutableMapping[tuple[int, ...], Callee]
    arguments: tuple[int, ...]
    count: int

    def caller(self, refuse: Refuse) -> Call:
        """Return the function to call: a table lookup and a static call for any number of gears."""
        find, pick, count = self._calls.get, self.pick, self.count
        one = self.sources[0].argument if self._one_integer else -1
        read = self.read if one < 0 else operator.itemgetter(one)

        def call(*args: Any) -> Any:
            try:
                chosen = find(read(args)) if len(args) == count else None
            except (AttributeError, IndexError, TypeError) as error:
                return refuse(args, error)
            if chosen is None:
                return refuse(args, None)
            try:
                return chosen(*pick(args))
            except InputError as error:
                return refuse(args, error)

        return call

    def add(self, sizes: tuple[int, ...], program: Callee) -> None:
        """Run calls of these sizes with this program from now on."""
        self.table[sizes] = program
        self._calls[self._key(sizes)] = program.call

    def remove(self, sizes: tuple[int, ...]) -> None:
        """Remove the program for these sizes."""
        del self.table[sizes]
        self._calls.pop(self._key(sizes), None)

    @cached_property
    def _calls(self) -> dict[Any, Call]:
        return {self._key(sizes): program.call for sizes, program in self.table.items()}

    @property
    def _one_integer(self) -> bool:
        return len(self.sources) == 1 and self.sources[0].axis < 0

    def _key(self, sizes: tuple[int, ...]) -> Any:
        return sizes[0] if self._one_integer else sizes

    @cached_property
    def pick(self) -> Pick:
        """Selector of the arguments of a call that the programs take."""
        if list(self.arguments) == list(range(self.count)):
            return lambda args: args
        return argument_picker(self.arguments)

    @cached_property
    def read(self) -> Callable[[Sequence[Any]], tuple[int, ...]]:
        """Reader of a call's sizes. Raises AttributeError, IndexError or TypeError for arguments of
        unexpected kinds."""
        return size_reader(self.sources)
