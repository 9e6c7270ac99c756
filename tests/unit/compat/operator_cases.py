"""Cases of operators of torch_npu: calls, and what they give in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

HALF, BRAIN, FLOAT, BYTE = torch.float16, torch.bfloat16, torch.float32, torch.int8
DTYPES = (HALF, BRAIN, FLOAT)

Expected = Callable[[], Sequence[Tensor | None]]
"""Results in float64; None for one that is not looked at."""

CASES: dict[str, Callable[[], tuple[str, tuple[Any, ...], dict[str, Any], Expected]]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """A case, by the name of its function."""
    CASES[function.__name__] = function
    return function


def drawn(*shape: int, dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.randn(shape).to(dtype)


def whole(*shape: int) -> Tensor:
    return torch.randint(-9, 10, shape, dtype=BYTE)
