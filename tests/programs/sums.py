"""What torch leaves open of sums and products: the order of terms, and small bfloat16 numbers.

Torch says that what is between may overflow where the result does not
(https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html, "Extremal values").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Ref, Step, run_step

SUMS = frozenset(("torch.sum", "torch.mean", "torch.nansum"))
PRODUCTS = frozenset(("torch.matmul", "F.linear", "F.conv2d"))

WAYS = 3
"""Of making another one of a result."""


def otherwise(step: Step, found: Mapping[str, Any], way: int) -> list[Tensor] | None:
    """What the step gives in another way, in float64; None where there is none.

    Ways 0 and 1: every sum overflows that does so in some order, to inf or else to -inf.
    Way 2: denormal bfloat16 numbers count as zeros in products, as they do in the processor's
    instruction. Eager takes it for some sizes and not for others.
    """
    if way == 2:
        return _flushed(step, found)
    read = found[step.args[0].name] if step.function in SUMS | PRODUCTS else None
    if read is None or not read.is_floating_point():
        return None
    dtype = torch.float64 if read.dtype == torch.float64 else torch.float32
    infinity = math.inf if way == 0 else -math.inf
    terms = _of_one_sign(step, found, infinity > 0)
    return [torch.where(terms.abs() > torch.finfo(dtype).max, infinity, _run(step, found))]


def _run(step: Step, found: Mapping[str, Any]) -> Tensor:
    made = {**found}
    with torch.no_grad():
        run_step(step, made)
    return made[step.names[0]].double()


def _of_one_sign(step: Step, found: Mapping[str, Any], positive: bool) -> Tensor:
    """The sum of the positive terms, or that of the negative ones."""

    def above(x: Tensor) -> Tensor:
        return _finite(x).clamp(min=0)

    def below(x: Tensor) -> Tensor:
        return _finite(x).clamp(max=0)

    if step.function in SUMS:
        terms = (above if positive else below)(found[step.args[0].name])
        return torch.sum(terms, *step.args[1:])
    pairs = ((above, above), (below, below)) if positive else ((above, below), (below, above))
    bias = above if positive else below
    return _product(step, found, *pairs[0], bias) + _product(
        step, found, *pairs[1], torch.zeros_like
    )


def _finite(x: Tensor) -> Tensor:
    return x.detach().double().nan_to_num(0.0, 0.0, 0.0)


Change = Callable[[Tensor], Tensor]


def _product(step: Step, found: Mapping[str, Any], a: Change, b: Change, bias: Change) -> Tensor:
    """The product of changed operands, in float64."""
    changed = {**found}
    args = list(step.args)
    for place, change in enumerate((a, b, bias)):
        if place < len(args) and isinstance(args[place], Ref):
            name = f"operand {place}"
            changed[name] = change(found[args[place].name]).double()
            args[place] = Ref(name)
    return _run(Step(step.names, step.function, tuple(args), step.kwargs), changed)


def _flushed(step: Step, found: Mapping[str, Any]) -> list[Tensor] | None:
    if step.function not in PRODUCTS or found[step.args[0].name].dtype != torch.bfloat16:
        return None

    def without_denormals(x: Tensor) -> Tensor:
        return torch.where(x.detach().abs() < torch.finfo(x.dtype).tiny, 0, x.detach())

    return [_product(step, found, without_denormals, without_denormals, without_denormals)]
