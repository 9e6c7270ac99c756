"""What a random program is made with: choices among its tensors, and steps that are tried out.

Each step runs in eager for two sizes as soon as it is made. One that eager refuses is left out, so
that operators need not know all the rules of what they call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.programs.minimise import pruned
from tests.programs.program import SEED, SIZE, Program, Ref, Seed, SizeOf, Step
from tests.programs.rounding import Exactness, tensors_of

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
MOST_ELEMENTS = 6000

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


class Unfit(Exception):
    """The program has no tensor as an operator wants it."""


@dataclass
class World:
    """The program's tensors at one size."""

    found: dict[str, Any]
    exactness: Exactness = field(default_factory=Exactness)


class Builder:
    """A program in the making."""

    def __init__(self, seed: int, sizes: tuple[int, ...], gradient: bool) -> None:
        self.rng = random.Random(seed)
        self.sizes, self.gradient = sizes, gradient
        self.inputs: list[Step] = []
        self.steps: list[Step] = []
        self.arguments: list[str] = []
        self.buffers: list[str] = []
        self.parameters: list[str] = []
        pairs = enumerate(dict.fromkeys(sizes))
        self.worlds = [World({SIZE: size, SEED: 100 * at}) for at, size in pairs]

    # ---- steps ------------------------------------------------------------------------------

    def step(
        self, function: str, *args: Any, names: int = 1, rounds: bool = False, **kwargs: Any
    ) -> str:
        """Adds a step and returns its first name. Unfit when eager refuses it."""
        fresh = tuple(f"v{len(self.steps)}{'abcdefgh'[i] if names > 1 else ''}"
                      for i in range(names))  # fmt: skip
        step = Step(fresh, function, args, tuple(kwargs.items()), rounds)
        self._try(step)
        self.steps.append(step)
        return fresh[0] if fresh else ""

    def _try(self, step: Step) -> None:
        for world in self.worlds:
            before = dict(world.found)
            try:
                world.exactness.step(step, world.found)
                made = [t for name in step.names for t in tensors_of(world.found[name])]
            except REFUSALS as error:
                world.found = before
                self._forget(step)
                raise Unfit(str(error)) from None
            if any(t.numel() > MOST_ELEMENTS or t.is_complex() for t in made):
                self._forget(step)
                raise Unfit("too large")

    def _forget(self, step: Step) -> None:
        for world in self.worlds:
            for name in step.names:
                world.found.pop(name, None)

    # ---- inputs -----------------------------------------------------------------------------

    def input(
        self, dtype: torch.dtype, shape: Sequence[Any], fill: str, kind: str = "argument"
    ) -> str:
        """A new tensor from outside: an "argument", "buffer" or "parameter"."""
        varies = any(isinstance(size, Ref) for size in shape)
        if varies and kind != "argument":
            kind = "argument"
        name = f"{kind[0]}{len(self.inputs)}"
        kwargs: tuple[tuple[str, Any], ...] = ()
        if self.gradient and kind == "argument" and dtype.is_floating_point:
            kwargs = (("wants_gradient", True),)
        seed = Seed(len(self.inputs)) if kind == "argument" else len(self.inputs)
        self._input(Step((name,), "values.make", (dtype, tuple(shape), fill, seed), kwargs))
        {"argument": self.arguments, "buffer": self.buffers}.get(kind, self.parameters).append(name)
        return name

    def _input(self, step: Step) -> None:
        self._try(step)
        self.inputs.append(step)

    def input_view(self, function: str, *args: Any, **kwargs: Any) -> str:
        """A new argument that shares memory with an earlier one."""
        name = f"a{len(self.inputs)}"
        self._input(Step((name,), function, args, tuple(kwargs.items())))
        self.arguments.append(name)
        return name

    # ---- choices ----------------------------------------------------------------------------

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def pick(self, wanted: Callable[[Tensor], bool] = lambda t: True, exact: bool = False) -> str:
        """A tensor's name, recent ones more often. Unfit when there is none."""
        fitting = [
            name
            for name, value in self.worlds[0].found.items()
            if isinstance(value, Tensor)
            and all(wanted(w.found[name]) for w in self.worlds)
            and (not exact or all(w.exactness.is_exact(w.found[name]) for w in self.worlds))
        ]
        if not fitting:
            raise Unfit("no tensor")
        place = max(self.rng.random(), self.rng.random())
        return fitting[int(place * len(fitting))]

    def tensor(self, name: str) -> Tensor:
        """The tensor at the first size."""
        return self.worlds[0].found[name]

    def dim(self, name: str) -> int:
        """A dim, counted from the front or the end. Unfit for a scalar."""
        rank = self.tensor(name).dim()
        if rank == 0:
            raise Unfit("a scalar")
        return self.rng.randrange(-rank, rank)

    def size(self, name: str, dim: int) -> int:
        """The least of the sizes that a dim has. Unfit when the rank varies."""
        return min(shape[dim] for shape in self._shapes(name))

    def _shapes(self, name: str) -> list[tuple[int, ...]]:
        """A tensor's shape in each world: a squeeze may have made their ranks differ."""
        shapes = [tuple(w.found[name].shape) for w in self.worlds]
        if len({len(shape) for shape in shapes}) > 1:
            raise Unfit("a rank that varies")
        return shapes

    def shape(self, name: str) -> tuple[Any, ...]:
        """A tensor's shape for a new input. Unfit when that is neither numbers nor `SIZE`."""
        shapes = self._shapes(name)
        sizes = [w.found[SIZE] for w in self.worlds]
        made: list[Any] = []
        for each in zip(*shapes, strict=True):
            if len(set(each)) == 1:
                made.append(each[0])
            elif list(each) == sizes:
                made.append(Ref(SIZE))
            else:
                raise Unfit("a size between")
        return tuple(made)

    def shape_in_program(self, name: str) -> tuple[Any, ...]:
        """A tensor's shape as the program would write it."""
        shapes = zip(*self._shapes(name), strict=True)
        return tuple(
            each[0] if len(set(each)) == 1 and not self.chance(4) else SizeOf(name, dim)
            for dim, each in enumerate(shapes)
        )

    # ---- the whole --------------------------------------------------------------------------

    def program(self, results: Sequence[str]) -> Program:
        """What has been made so far, without arguments that nothing reads."""
        whole = Program(
            tuple(self.inputs),
            tuple(self.arguments),
            tuple(self.buffers),
            tuple(self.parameters),
            tuple(self.steps),
            tuple(results),
            self.sizes,
            self.gradient,
        )
        return pruned(whole)
