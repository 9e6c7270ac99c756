"""Traced (fake) tensors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from kernelmill.torch_internals.registry import internal


@internal(
    "tracing.fake_tensor",
    reason="telling traced tensors from subclasses with code of their own",
    fallback="they are told by the name of their class",
)
def _fake_tensor() -> type | None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        made = torch.empty(1)
    return FakeTensor if type(made) is FakeTensor else None


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of torch's fakes."""
    known, kind = _fake_tensor.get(), type(tensor)
    if known is not None:
        return kind is known
    return kind.__name__ == "FakeTensor" and kind.__module__.partition(".")[0] == "torch"


@internal(
    "tracing.fake_mode",
    reason="tracing the operators of a profiler session without computing them",
    fallback="static_kernels.from_profiler refuses sessions",
)
def fake_mode() -> type[AbstractContextManager[Any]] | None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        made = torch.empty(2, 3) + 1
    return FakeTensorMode if tuple(made.shape) == (2, 3) else None
