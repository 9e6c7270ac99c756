"""Calls whose sizes are no gear, padded to the smallest gear that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import evaluate, symbols
from kernelmill.core.errors import InputError
from kernelmill.core.target.machine import host
from kernelmill.plan.padding import Padding
from kernelmill.runtime.estimates import estimated_ns
from kernelmill.runtime.gears.geared import Callee, GearedProgram
from kernelmill.runtime.gears.padding import Resizing
from kernelmill.runtime.memory.dims import plan_dims
from kernelmill.runtime.program import Program

Call = Callable[..., Any]
Sizes = Mapping[str, int]

_MOST_SIZES = 4096
"""How many true sizes a program remembers the gear of."""


@dataclass(frozen=True)
class _Chosen:
    """What calls of one set of true sizes do: `shapes` are those of all tensor arguments. Without
    `resizing` they run as they are."""

    shapes: tuple[tuple[int, tuple[int, ...]], ...]
    resizing: Resizing | None
    call: Call


class PaddedCalls:
    """Runs calls at the smallest gear that holds their sizes, and cuts the results; or as they are,
    where the cost model has the `dynamic` program finish earlier.

    `broken` says what the trace takes for granted that does not hold for sizes; "" when it holds.
    Arguments whose dims have another order in memory than the plan's are refused `in_order`.
    """

    def __init__(
        self,
        padding: Padding,
        program: GearedProgram,
        broken: Callable[[Sizes], str],
        dynamic: Program | None = None,
        in_order: bool = False,
    ) -> None:
        self.padding, self.dynamic = padding, dynamic
        self._in_order = in_order
        self._program, self._broken = program, broken
        self._known: dict[tuple[int, ...], _Chosen] = {}
        self._gears = 0

    def __call__(self, args: tuple[Any, ...]) -> list[Any] | None:
        """The results; None when no gear holds the arguments.

        InputError when the model was not traced for such sizes.
        """
        key = self._program.read(args)
        if self._gears != len(self._program.table):  # one more was compiled
            self._known, self._gears = {}, len(self._program.table)
        chosen = self._known.get(key)
        if chosen is None:
            chosen = self._choose(key)
            if chosen is None:
                return None
        if not _fit(args, chosen.shapes):
            return None
        if chosen.resizing is None:
            return chosen.call(*args)
        padded = chosen.resizing.pad(args, self._in_order)
        return chosen.resizing.cut(chosen.call(*self._program.pick(padded)))

    def offer(self, dynamic: Program) -> None:
        """Have this program for all sizes weighed against padding from now on."""
        self.dynamic, self._known = dynamic, {}

    def _choose(self, key: tuple[int, ...]) -> _Chosen | None:
        gear = smallest_holding(self._program.table, key)
        if gear is None:
            return None
        names, fixed = self._program.symbols, dict(self.padding.fixed)
        sizes = {**fixed, **dict(zip(names, key, strict=True))}
        padded = {**fixed, **dict(zip(names, gear, strict=True))}
        resizing = Resizing(self.padding, sizes, padded)
        broken = self._broken(sizes)
        if broken:
            raise InputError(f"the sizes {sizes} cannot be padded: {broken}")
        shapes = tuple(
            (number, tuple(evaluate(dim, sizes) for dim in shape))
            for number, shape in self.padding.tensors
        )
        program = self._program.table[gear]
        made = _Chosen(shapes, resizing, program.call)
        if self.dynamic is not None and _sooner(self.dynamic, sizes, program, resizing):
            made = _Chosen(shapes, None, self.dynamic.call)
        while len(self._known) >= _MOST_SIZES:
            oldest, *_ = self._known  # at once, as others may add some
            self._known.pop(oldest, None)
        self._known[key] = made
        return made


def smallest_holding(
    gears: Iterable[tuple[int, ...]], sizes: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The gear of the least work in which these sizes have room; None when there is none."""
    fitting = [
        gear
        for gear in list(gears)
        if all(large >= small for large, small in zip(gear, sizes, strict=True))
    ]
    return min(fitting, key=lambda sizes: (prod(sizes), sizes), default=None)


def _sooner(dynamic: Program, sizes: Sizes, gear: Callee, resizing: Resizing) -> bool:
    """Whether the cost model has the dynamic program finish before the padded call of a gear."""
    if not isinstance(gear, Program) or not _holds(dynamic, sizes):
        return False
    try:
        as_it_is = estimated_ns(dynamic.plan, sizes)
        padded = estimated_ns(gear.plan, {})
    except KeyError:
        return False
    return as_it_is < padded + resizing.estimated_ns(host())


def _holds(dynamic: Program, sizes: Sizes) -> bool:
    """Whether the dynamic program takes calls of these sizes."""
    equations = dynamic.plan.equations
    # An integer that nothing reads, as one that is a size again, may have any value.
    read = (*plan_dims(dynamic.plan), *(dim for pair in equations for dim in pair))
    return all(symbols(dim).keys() <= sizes.keys() for dim in read) and all(
        evaluate(left, sizes) == evaluate(right, sizes) for left, right in equations
    )


def _fit(args: tuple[Any, ...], shapes: tuple[tuple[int, tuple[int, ...]], ...]) -> bool:
    """Whether every tensor argument has its shape."""
    for number, shape in shapes:
        argument = args[number]
        if not isinstance(argument, torch.Tensor) or argument.shape != shape:
            return False
    return True
