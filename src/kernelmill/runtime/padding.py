"""Pads arguments to a gear's sizes with zeros, and cuts results back to the true ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from kernelmill.core.dim import Dim, evaluate
from kernelmill.core.errors import InputError
from kernelmill.plan.padding import PaddedInput, PaddedResult, Padding

Sizes = Mapping[str, int]


def check_sizes(padding: Padding, sizes: Sizes) -> None:
    """Raises InputError for true sizes at which the traced program does not hold: padding them
    would compute something else than the model does."""
    for name, low, high in padding.ranges:
        most = None if high is None else evaluate(high, sizes)
        if sizes[name] < low or (most is not None and sizes[name] > most):
            top = "" if most is None else f" and at most {most}"
            raise InputError(
                f"a size of {sizes[name]} cannot be padded: the model was traced for sizes of at "
                f"least {low}{top}, and may do something else for this one"
            )


def pad_arguments(padding: Padding, arguments: Sequence[Any], gear: Sizes) -> list[Any]:
    """The arguments at the gear's sizes: those that are too small as copies in zeros.

    `gear` gives the padded size of every padded symbol, and the value of all others. A tensor that
    already has the gear's shape is passed through.
    """
    found = list(arguments)
    for number, symbol in padding.sizes:
        found[number] = gear[symbol]
    for entry in padding.inputs:
        found[entry.number] = _padded(entry, found[entry.number], gear)
    return found


def _padded(entry: PaddedInput, tensor: Tensor, gear: Sizes) -> Tensor:
    shape = _evaluated(entry.shape, gear)
    if tuple(tensor.shape) == shape:
        return tensor
    strides = _evaluated(entry.strides, gear)
    room = torch.empty_strided(shape, strides, dtype=tensor.dtype).zero_()
    room[tuple(slice(size) for size in tensor.shape)] = tensor.detach()
    return room


def slice_results(padding: Padding, results: Sequence[Any], sizes: Sizes, gear: Sizes) -> list[Any]:
    """The results at the true `sizes`, with the strides that eager gives them. `gear` as above.

    A result that lies in memory as eager's does is a view of the padded one; others are copies.
    """
    found = list(results)
    for number, dim in padding.size_results:
        found[number] = evaluate(dim, sizes)
    for entry in padding.results:
        found[entry.number] = _cut(entry, found[entry.number], sizes, gear)
    return found


def _cut(entry: PaddedResult, tensor: Tensor, sizes: Sizes, gear: Sizes) -> Tensor:
    factors = [factor for axis in entry.axes for factor in axis]
    apart = tensor.reshape(_evaluated(factors, gear))
    kept = apart[tuple(slice(size) for size in _evaluated(factors, sizes))]
    shape = tuple(prod(_evaluated(axis, sizes)) for axis in entry.axes)
    strides = _evaluated(entry.strides, sizes)
    kept = kept.reshape(shape)
    if kept.stride() == strides:
        return kept
    return torch.empty_strided(shape, strides, dtype=tensor.dtype).copy_(kept)


def _evaluated(dims: Sequence[Dim], sizes: Sizes) -> tuple[int, ...]:
    return tuple(evaluate(dim, sizes) for dim in dims)
