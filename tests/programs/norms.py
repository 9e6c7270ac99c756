"""Norms: what roundings and overflows of their parts leave open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Ref, Step, run_step

EPSILON = 1e-5
"""What torch adds to a variance where nothing else is said; programs say nothing."""

CENTRED = frozenset(("F.layer_norm", "F.group_norm", "F.batch_norm"))
"""Norms that take a mean off."""

ALIKE = {"F.layer_norm": -1, "F.group_norm": 0}
"""The dim along which the rounding of a norm's mean moves all elements alike; 0 for all dims but
the first. Eager's own two disagree by it on the same rows."""


@dataclass(frozen=True)
class _Parts:
    """A norm's operands in float64, of shapes that broadcast. `terms` is of how many numbers the
    mean is the mean: none, where it is given."""

    x: Tensor
    mean: Tensor
    variance: Tensor
    magnitude: Tensor
    weight: Tensor
    bias: Tensor
    terms: int


def undecided(step: Step, found: Mapping[str, Any]) -> Tensor:
    """The norm as eager has it, but NaN in rows in which the sum of the squares of the distances
    from the mean overflows. The norm is zero times what it takes the mean off there: zero in one
    order of the parts, and NaN where an infinity was between. Gradients go through these rows too.
    """
    made = {**found}
    run_step(step, made)
    result: Tensor = made[step.names[0]]
    parts = _parts(step, found)
    fits = parts.variance * parts.terms <= _largest(found[step.args[0].name])
    return result.double() * torch.where(fits, 1.0, math.nan)


def rounding(step: Step, found: Mapping[str, Any]) -> Tensor | None:
    """How far x * s + (bias - mean * s), the way of eager's batch_norm, and (x - mean) * s + bias
    may be from the exact number: three roundings of each of the terms, and n of those of a mean of
    n numbers (Higham, Accuracy and Stability, 3.1 and 4.2). What is exactly zero in one way is not
    in the other. None where float64 tells that better: of a mean that is not given, in a smaller
    type.
    """
    x: Tensor = found[step.args[0].name]
    parts = _parts(step, found)
    if parts.terms and x.dtype != torch.float64:
        return None
    scale = (parts.weight / (parts.variance + EPSILON).sqrt()).abs()
    size = scale * (parts.x.abs() + parts.magnitude) + parts.bias.abs()
    return (parts.terms + 3) * torch.finfo(x.dtype).eps / 2 * size


def _largest(x: Tensor) -> float:
    return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).max


def _parts(step: Step, found: Mapping[str, Any]) -> _Parts:
    x = _double(found[step.args[0].name])
    given = [_double(found[a.name]) if isinstance(a, Ref) else None for a in step.args[1:]]
    along = 1 if step.function != "F.layer_norm" else x.dim() - len(step.args[1])
    first = 3 if step.function == "F.batch_norm" else 2
    weight, bias = (
        _along(one, along, x) if one is not None else x.new_full((), default)
        for one, default in zip((*given[first - 1 :], None, None), (1.0, 0.0), strict=False)
    )
    if step.function == "F.batch_norm" and not step.args[5]:
        mean, variance = (_along(one, 1, x) for one in given[:2] if one is not None)
        return _Parts(x, mean, variance, mean.abs(), weight, bias, 0)
    rows, dims = _rows(step, x)
    count = math.prod(rows.shape[d] for d in dims)
    means = (
        one.expand_as(rows).reshape(x.shape)
        for one in (
            rows.mean(dims, keepdim=True),
            rows.var(dims, correction=0, keepdim=True),
            rows.abs().mean(dims, keepdim=True),
        )
    )
    return _Parts(x, *means, weight, bias, count)


def _rows(step: Step, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The numbers, and the dims along which a mean is taken."""
    if step.function == "F.layer_norm":
        return x, tuple(range(x.dim() - len(step.args[1]), x.dim()))
    if step.function == "F.batch_norm":
        return x, (0, *range(2, x.dim()))
    groups = step.args[1]
    return x.unflatten(1, (groups, x.shape[1] // groups)), tuple(range(2, x.dim() + 1))


def _along(one: Tensor, dim: int, x: Tensor) -> Tensor:
    """A tensor whose dims are those of x from `dim` on, so that it broadcasts."""
    return one.reshape(*one.shape, *[1] * (x.dim() - dim - one.dim()))


def _double(x: Tensor) -> Tensor:
    return x.detach().double()
