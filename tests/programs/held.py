"""The module that a program's text derives from: it holds buffers and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kernelmill.inference import cache_compile


class Held(nn.Module):
    """A module whose `run` is a program; `forward` runs it, through `cached` once it has one."""

    def __init__(self, buffers: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)
        for name, tensor in parameters.items():
            wanted = torch.is_grad_enabled() and tensor.is_floating_point()
            self.register_parameter(name, nn.Parameter(tensor, requires_grad=wanted))

    def cache(self, folder: str, **options: Any) -> Any:
        """The method `run` through `cache_compile`."""
        return cache_compile(self.run, cache_dir=folder, **options)

    def forward(self, *args: Any) -> Any:
        return self.run(*args)

    def run(self, *args: Any) -> Any:
        raise NotImplementedError
