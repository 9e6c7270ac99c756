"""Allocation of tensors without torch's dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from kernelmill.torch_internals import tensors
from kernelmill.torch_internals.tensors import Alias, Allocate, direct_allocation

_direct = direct_allocation.get()


def _by_dispatcher(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


empty_strided: Allocate = _direct or _by_dispatcher
"""A new CPU tensor of this shape and strides (in elements), 64-byte aligned, not filled."""

is_direct = _direct is not None
"""True if no mode or default device of the user's affects `empty_strided`."""

alias: Alias | None = tensors.alias.get()
"""Returns a tensor over another one's memory, at an offset in elements, unseen by tracing; None if
this torch has no such function."""


@lru_cache(maxsize=4096)
def elements_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first address to the last, 0 for empty tensors."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def lie_alike(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether elements of this shape have the same offsets with both strides."""
    return 0 in shape or all(
        size == 1 or stride == other
        for size, stride, other in zip(shape, strides, others, strict=True)
    )


def lie_in_one_order(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether the dims of this shape have the same order in memory with both strides, and
    the same of them are expanded. Torch's results for two such tensors have the same strides, with
    gaps between elements or without."""
    dims = [n for n, size in enumerate(shape) if size != 1]
    kept = [strides[n] for n in dims], [others[n] for n in dims]
    one, other = ([sorted({0, *each}).index(stride) for stride in each] for each in kept)
    return 0 in shape or one == other
