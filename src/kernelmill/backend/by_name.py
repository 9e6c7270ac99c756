"""The entry point that torch.compile loads for `backend="kernelmill"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelmill.backend.entry import Backend, get_backend

if TYPE_CHECKING:
    import torch


def kernelmill(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
) -> Callable[..., Any]:
    """Compile a graph with the default config: `torch.compile(model, backend="kernelmill")`."""
    return Backend()(gm, example_inputs, **kwargs)


get_backend()  # loads the compiler
