"""A program for each gear, and the choice between them at a call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, MutableMapping
from functools import cached_property
from typing import Any, Protocol

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import InputError
from kernelmill.runtime.calls.caller import Call, Pick, argument_picker


class Callee(Protocol):
    """A program."""

    @property
    def call(self) -> Call: ...


Refuse = Callable[[tuple[Any, ...], Exception | None], Any]
"""What answers a call that no gear takes: it raises, or gives the results of another way. With an
exception: the gear that was chosen refused an argument with it."""


@dataclass(frozen=True)
class SizeSource:
    """Where a call's size is read: an integer argument (axis -1), or an axis of a tensor one."""

    argument: int
    axis: int = -1


@dataclass(frozen=True, eq=False)
class GearedProgram:
    """`table` has the program for the sizes that `sources` give, as a tuple; `symbols` are the dims
    that those are (one symbol each, as a rule). `arguments` are the positions of those arguments,
    of `count`, that programs take. Programs may be added while others are called."""

    sources: tuple[SizeSource, ...]
    symbols: tuple[str, ...]
    table: MutableMapping[tuple[int, ...], Callee]
    arguments: tuple[int, ...]
    count: int

    def caller(self, refuse: Refuse) -> Call:
        """The function to call: a look into a table and the call of a static program, however many
        gears there are."""
        if self._one_integer:
            return _by_one_integer(self._calls, self.sources[0].argument, self.pick, refuse)
        return _by_sizes(self._calls, self.read, self.pick, refuse)

    def add(self, sizes: tuple[int, ...], program: Callee) -> None:
        """Have calls of these sizes run this program from now on."""
        self.table[sizes] = program
        self._calls[self._key(sizes)] = program.call

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
        """Gives the arguments of a call that the programs take."""
        if list(self.arguments) == list(range(self.count)):
            return lambda args: args
        return argument_picker(self.arguments)

    @cached_property
    def read(self) -> Callable[[tuple[Any, ...]], tuple[int, ...]]:
        """Gives the sizes of a call. Raises TypeError, AttributeError or IndexError for odd
        arguments."""
        if len(self.sources) > 1 and all(source.axis < 0 for source in self.sources):
            return operator.itemgetter(*(source.argument for source in self.sources))
        places = [(source.argument, source.axis) for source in self.sources]

        def read(args: tuple[Any, ...]) -> tuple[int, ...]:
            return tuple([args[i] if axis < 0 else args[i].shape[axis] for i, axis in places])

        return read


def _by_one_integer(
    calls: Mapping[int, Call], position: int, pick: Callable[..., Any], refuse: Refuse
) -> Call:
    find = calls.get

    def call(*args: Any) -> Any:
        chosen = find(args[position])
        if chosen is None:
            return refuse(args, None)
        try:
            return chosen(*pick(args))
        except InputError as error:
            return refuse(args, error)

    return call


def _by_sizes(
    calls: Mapping[tuple[int, ...], Call],
    read: Callable[[tuple[Any, ...]], tuple[int, ...]],
    pick: Callable[..., Any],
    refuse: Refuse,
) -> Call:
    find = calls.get

    def call(*args: Any) -> Any:
        try:
            chosen = find(read(args))
        except (AttributeError, IndexError, TypeError) as error:
            return refuse(args, error)
        if chosen is None:
            return refuse(args, None)
        try:
            return chosen(*pick(args))
        except InputError as error:
            return refuse(args, error)

    return call
