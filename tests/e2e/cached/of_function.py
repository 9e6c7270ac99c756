"""A module whose cached method is a function that a test gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill.inference import cache_compile


class OfFunction(nn.Module):
    def __init__(self, function: Callable[..., Tensor], folder: Path) -> None:
        super().__init__()
        self.run, self._function = cache_compile(self.step, cache_dir=folder), function

    def step(self, *args: Any) -> Tensor:
        return self._function(*args)


def check_calls(
    function: Callable[..., Tensor], calls: Sequence[tuple[Any, ...]], folder: Path
) -> None:
    """Each of these calls gives what eager gives, in whatever order, traced and loaded."""
    for _ in range(2):  # the second loads what the first has kept
        model = OfFunction(function, folder)
        for args in (*calls, *reversed(calls), *calls):
            assert_close(model.run(*args), function(*args))
