"""Random programs: the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from tests.programs import views, writes
from tests.programs.builder import FLOATS, INTEGERS, Builder, Unfit
from tests.programs.layers import LAYERS
from tests.programs.operators import OPERATORS
from tests.programs.program import SIZE, Program, Ref

SIZES = (2, 3, 4, 5, 7, 8, 13, 65)
DIMS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 17, 65)
FILLS = ("whole", "whole", "whole", "ties", "normal", "special", "special", "huge", "masked")

Operator = Callable[[Builder], Any]

KINDS = ((views.VIEWS, 30), (writes.WRITES, 22), (OPERATORS, 48))
"""Tables of operators, and how often of 100 one is taken from each."""

LAYERS_FROM = 100_000
"""Programs of seeds from here on have operators of `layers.py` too; the others stay as they are,
because the record counts seeds."""

KINDS_WITH_LAYERS = ((views.VIEWS, 18), (writes.WRITES, 14), (OPERATORS, 28), (LAYERS, 40))


def generate(seed: int, most_steps: int = 9) -> Program:
    """The random program of this seed."""
    # Torch's own random numbers are not used: what a program holds comes from its seeds.
    first = Builder(seed, (2, 3), gradient=False).rng
    sizes = tuple(first.sample(SIZES, 2))
    if first.randrange(8) == 0:
        sizes = (sizes[0], 1)
    b = Builder(seed + 1, sizes, gradient=first.randrange(4) == 0)
    with torch.set_grad_enabled(b.gradient):
        for _ in range(b.rng.randint(1, 3)):
            _add_input(b)
        for _ in range(b.rng.choice((0, 0, 1, 1, 2))):
            with suppress(Unfit):
                views.alias_argument(b)
        for _ in range(b.rng.randint(2, most_steps)):
            _add_step(b, KINDS if seed < LAYERS_FROM else KINDS_WITH_LAYERS)
        return b.program(_results(b))


def _add_input(b: Builder) -> None:
    shape = [b.rng.choice(DIMS) for _ in range(b.rng.choice((0, 1, 2, 2, 2, 3, 3, 4)))]
    while _product(shape) > 1500:
        shape[b.rng.randrange(len(shape))] = 2
    fitting = [d for d, size in enumerate(shape) if size > 1]
    given: list[object] = list(shape)
    if fitting and b.chance(2) and _product(shape) * max(b.sizes) < 6000:
        given[b.rng.choice(fitting)] = Ref(SIZE)
    roll = b.rng.random()
    dtype = b.rng.choice(FLOATS) if roll < 0.3 else torch.float32
    if roll > 0.75:
        dtype = b.rng.choice((*INTEGERS, torch.bool))
    kind = b.rng.choice(("argument", "argument", "argument", "buffer"))
    b.input(dtype, given, b.rng.choice(FILLS), kind if b.arguments else "argument")


def _product(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= max(size, 1)
    return product


def _add_step(b: Builder, kinds: Sequence[tuple[Sequence[Operator], int]]) -> None:
    """A step that eager takes, if one is found soon."""
    for _ in range(20):
        (table,) = b.rng.choices([t for t, _ in kinds], [w for _, w in kinds])
        with suppress(Unfit, IndexError):  # a rank that varies
            b.rng.choice(table)(b)
            return


def _results(b: Builder) -> list[str]:
    """What nothing else uses, and a few others."""
    used = {name for step in b.steps for name in step.reads()}
    made = [name for step in b.steps for name in step.names]
    found = [name for name in made if name not in used][-4:]
    others = [name for name in (*b.arguments, *b.buffers, *made) if name not in found]
    if others and (b.chance(3) or not found):
        found.append(b.rng.choice(others))
    if found and b.chance(25):
        found.append(found[0])
    tensors = b.worlds[0].found
    return [name for name in found if isinstance(tensors[name], Tensor)]
