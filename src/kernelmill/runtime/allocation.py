"""Tensors without torch's dispatcher."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

Allocate = Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
Alias = Callable[[torch.Tensor, Sequence[int], Sequence[int], int], torch.Tensor]


def _allocator() -> Allocate:
    # The quick one knows no dispatcher: no mode or default device of the user's can get at it.
    # Part of torch's extension module: importing it does not import torch._dynamo.
    guards: Any = sys.modules.get("torch._C._dynamo.guards")
    quick = getattr(guards, "_empty_strided_cpu", None)
    if quick is not None:
        return quick

    def plain(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")

    return plain


empty_strided: Allocate = _allocator()
"""A new CPU tensor of this shape and strides (in elements), 64-byte aligned, not filled."""

is_direct = empty_strided.__name__ == "_empty_strided_cpu"
"""Whether no mode or default device of the user's can get at `empty_strided`."""

alias: Alias | None = getattr(
    sys.modules.get("torch._C._dynamo.guards"), "_reinterpret_tensor", None
)
"""A tensor over another one's memory, so many elements behind its beginning, without a trace; None
where this torch has no such thing."""


@lru_cache(maxsize=4096)
def elements_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last, 0 when there are none."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
