"""Cached methods and files give torch's results without each private part of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.core.errors import KernelmillError, UnsupportedError
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.inference import cache_compile
from kernelmill.runtime.executor import executor
from kernelmill.torch_internals import forced, registry
from tests import kept_methods

registry.register_all()

NEEDED_FOR_FILES = {"export.trees", "native.packed", "tensors.handle"}
"""Without these a model cannot be made a file, or a file not be called: it has no other way."""


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.level = 2.0

    def forward(self, x: torch.Tensor, memory: dict[str, torch.Tensor]) -> torch.Tensor:
        x = torch.relu(self.linear(x)) * self.level
        return x.softmax(-1) + memory["more"]


def _forget() -> None:
    """Nothing that was made with the part is used again."""
    torch._dynamo.reset()
    decomposition_table.cache_clear()
    executor.cache_clear()


@pytest.fixture(autouse=True, params=sorted(registry.known()))
def left_out(request: pytest.FixtureRequest) -> Iterator[str]:
    _forget()
    with forced([request.param]), torch.no_grad():
        yield request.param
    _forget()


def follow(model: Model, call: Callable[..., torch.Tensor]) -> None:
    """Calls as they come: again, with a written weight, with a new one, with another constant."""
    for _ in range(3):
        arguments = torch.randn(3, 6), {"more": torch.randn(3, 1)}
        torch.testing.assert_close(call(*arguments), model(*arguments))
    for change in (
        lambda: model.linear.weight.mul_(2),
        lambda: setattr(model.linear, "bias", nn.Parameter(torch.ones(6))),
        lambda: setattr(model, "level", 3.0),
    ):
        change()
        arguments = torch.randn(3, 6), {"more": torch.randn(3, 1)}
        torch.testing.assert_close(call(*arguments), model(*arguments))


def test_cached_methods_follow_their_weights(left_out: str, tmp_path: Path) -> None:
    model = Model()
    follow(model, cache_compile(model.forward, cache_dir=str(tmp_path)))
    assert any(tmp_path.rglob("*.kmill")) == (left_out not in kept_methods.NAMES)


def test_files_take_what_they_were_made_for(left_out: str, tmp_path: Path) -> None:
    model = Model()
    arguments = torch.randn(3, 6), {"more": torch.randn(3, 1)}
    if left_out in NEEDED_FOR_FILES:
        with pytest.raises(UnsupportedError, match=left_out):
            path = kernelmill.aot.compile(model, arguments, path=tmp_path / "m.kmill")
            kernelmill.aot.load(path)(*arguments)
        return
    program = kernelmill.aot.load(
        kernelmill.aot.compile(model, arguments, path=tmp_path / "m.kmill")
    )
    for _ in range(3):
        torch.testing.assert_close(program(*arguments), model(*arguments))
    with pytest.raises(KernelmillError):
        program(torch.randn(4, 6), arguments[1])
    with pytest.raises(KernelmillError):
        program(arguments[0].double(), arguments[1])
