"""Tensors without torch's dispatcher."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

Allocate = Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]


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
