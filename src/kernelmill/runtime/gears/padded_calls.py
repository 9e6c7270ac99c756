"""Calls whose sizes match no gear, padded to the smallest gear that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Union

import torch

from kernelmill.core.dim import evaluate, symbols
from kernelmill.core.errors import InputError
from kernelmill.core.target.machine import host
from kernelmill.plan.padding import Padding
from kernelmill.runtime.estimates import estimated_ns
from kernelmill.runtime.gears.geared import Callee, GearedProgram
from kernelmill.runtime.gears.padding import Resizing
from kernelmill.runtime.memory.dims import plan_dims
from kernelmill.runtime.program import Program

Padded = Callable[[tuple[Any, ...]], Union[list[Any], None]]
"""A call of one set of true sizes; None when an argument has another shape."""

Sizes = Mapping[str, int]

_MOST_SIZES = 4096
"""Most true sizes whose gear a program caches."""


class PaddedCalls:
    """Runs calls at the smallest gear that holds their sizes, and crops the results; or runs the
    `dynamic` program, where the cost model has that finish earlier.

    `broken` returns the assumption of the trace that does not hold for sizes; "" if all hold. With
    `in_order`, arguments whose dims have another order in memory than the plan's are refused.
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
        self._known: dict[tuple[int, ...], Padded] = {}
        self._gears = 0

    def __call__(self, args: tuple[Any, ...]) -> list[Any] | None:
        """Return the results; None when no gear holds the arguments.

        InputError when the model was not traced for such sizes.
        """
        key = self._program.read(args)
        if self._gears != len(self._program.table):  # one more was compiled
            self._known, self._gears = {}, len(self._program.table)
        call = self._known.get(key) or self._choose(key)
        return None if call is None else call(args)

    def offer(self, dynamic: Program) -> None:
        """Compare this program for all sizes with padding from now on."""
        self.dynamic, self._known = dynamic, {}

    def _choose(self, key: tuple[int, ...]) -> Padded | None:
        """Return the function for calls of these true sizes, cached; None if no gear holds them."""
        gear = smallest_holding(self._program.table, key)
        if gear is None:
            return None
        names, fixed = self._program.symbols, dict(self.padding.fixed)
        sizes = {**fixed, **dict(zip(names, key, strict=True))}
        resizing = Resizing(self.padding, sizes, {**fixed, **dict(zip(names, gear, strict=True))})
        broken = self._broken(sizes)
        if broken:
            raise InputError(f"the sizes {sizes} cannot be padded: {broken}")
        shapes = [
            (number, tuple(evaluate(dim, sizes) for dim in shape))
            for number, shape in self.padding.tensors
        ]
        program, dynamic = self._program.table[gear], self.dynamic
        as_they_are = dynamic is not None and _sooner(dynamic, sizes, program, resizing)
        run = dynamic.call if dynamic is not None and as_they_are else program.call
        pick, in_order = self._program.pick, self._in_order

        def call(args: tuple[Any, ...]) -> list[Any] | None:
            if not _fit(args, shapes):
                return None
            if as_they_are:
                return run(*args)
            return resizing.cut(run(*pick(resizing.pad(args, in_order))))

        while len(self._known) >= _MOST_SIZES:
            oldest, *_ = self._known  # at once, as others may add some
            self._known.pop(oldest, None)
        self._known[key] = call
        return call


def smallest_holding(
    gears: Iterable[tuple[int, ...]], sizes: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the gear of least work that holds these sizes; None when there is none."""
    fitting = [
        gear
        for gear in list(gears)
        if all(large >= small for large, small in zip(gear, sizes, strict=True))
    ]
    return min(fitting, key=lambda sizes: (prod(sizes), sizes), default=None)


def _sooner(dynamic: Program, sizes: Sizes, gear: Callee, resizing: Resizing) -> bool:
    """Return whether the cost model has the dynamic program finish before the padded call."""
    if not isinstance(gear, Program) or not _holds(dynamic, sizes):
        return False
    try:
        as_it_is = estimated_ns(dynamic.plan, sizes)
        padded = estimated_ns(gear.plan, {})
    except KeyError:
        return False
    return as_it_is < padded + resizing.estimated_ns(host())


def _holds(dynamic: Program, sizes: Sizes) -> bool:
    """Return whether the dynamic program accepts calls of these sizes."""
    equations = dynamic.plan.equations
    # An integer that nothing reads, as one that is a size again, may have any value.
    read = (*plan_dims(dynamic.plan), *(dim for pair in equations for dim in pair))
    return all(symbols(dim).keys() <= sizes.keys() for dim in read) and all(
        evaluate(left, sizes) == evaluate(right, sizes) for left, right in equations
    )


def _fit(args: tuple[Any, ...], shapes: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
    for number, shape in shapes:
        argument = args[number]
        if not isinstance(argument, torch.Tensor) or argument.shape != shape:
            return False
    return True
