"""Calls whose sizes are no gear, padded to the smallest gear that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from kernelmill.core.dim import Dim, evaluate
from kernelmill.core.errors import InputError
from kernelmill.plan.padding import Padding
from kernelmill.runtime.geared import GearedProgram
from kernelmill.runtime.padding import Resizing

Call = Callable[..., Any]
Sizes = Mapping[str, int]

_MOST_SIZES = 4096
"""How many true sizes a program remembers the gear of."""


@dataclass(frozen=True)
class _Chosen:
    """What calls of one set of true sizes do: `shapes` are those of all tensor arguments."""

    shapes: tuple[tuple[int, tuple[int, ...]], ...]
    resizing: Resizing
    call: Call


class PaddedCalls:
    """Runs calls at the smallest gear that holds their sizes, and cuts the results.

    `fixed` are the values of symbols that are the same in all gears, `tensors` the shapes of all
    tensor arguments by number. `broken` says what the trace takes for granted that does not hold
    for sizes; "" when it holds.
    """

    def __init__(
        self,
        padding: Padding,
        program: GearedProgram,
        fixed: Sizes,
        tensors: Sequence[tuple[int, tuple[Dim, ...]]],
        broken: Callable[[Sizes], str],
    ) -> None:
        self.padding, self.fixed, self.tensors = padding, fixed, tensors
        self._program, self._broken = program, broken
        self._known: dict[tuple[int, ...], _Chosen] = {}

    def __call__(self, args: tuple[Any, ...]) -> list[Any] | None:
        """The results; None when no gear holds the arguments.

        InputError when the model was not traced for such sizes.
        """
        key = self._program.read(args)
        chosen = self._known.get(key)
        if chosen is None:
            chosen = self._choose(key)
            if chosen is None:
                return None
        if not _fit(args, chosen.shapes):
            return None
        padded = chosen.resizing.pad(args)
        return chosen.resizing.cut(chosen.call(*self._program.pick(tuple(padded))))

    def _choose(self, key: tuple[int, ...]) -> _Chosen | None:
        fitting = [
            gear
            for gear in self._program.table
            if all(large >= small for large, small in zip(gear, key, strict=True))
        ]
        if not fitting:
            return None
        gear = min(fitting, key=lambda sizes: (prod(sizes), sizes))
        names = self._program.symbols
        sizes = {**self.fixed, **dict(zip(names, key, strict=True))}
        padded = {**self.fixed, **dict(zip(names, gear, strict=True))}
        resizing = Resizing(self.padding, sizes, padded)
        broken = self._broken(sizes)
        if broken:
            raise InputError(f"the sizes {sizes} cannot be padded: {broken}")
        shapes = tuple(
            (number, tuple(evaluate(dim, sizes) for dim in shape)) for number, shape in self.tensors
        )
        made = _Chosen(shapes, resizing, self._program.table[gear].call)
        while len(self._known) >= _MOST_SIZES:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = made
        return made


def _fit(args: tuple[Any, ...], shapes: tuple[tuple[int, tuple[int, ...]], ...]) -> bool:
    """Whether every tensor argument has its shape."""
    for number, shape in shapes:
        argument = args[number]
        if not isinstance(argument, torch.Tensor) or argument.shape != shape:
            return False
    return True
