"""Random numbers are drawn in the order of the program, whatever else is computed where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")
Function = Callable[[Tensor], "tuple[Tensor, ...]"]
LINEAR = nn.Linear(6, 3)


def sampled_then_normal(x: Tensor) -> tuple[Tensor, ...]:
    y = LINEAR(x)
    found = torch.multinomial(y.softmax(-1), 1, True)
    return found, torch.normal(torch.zeros_like(y), torch.ones_like(y)) + y


def sampled_then_noise(x: Tensor) -> tuple[Tensor, ...]:
    y = LINEAR(x)
    found = torch.multinomial(y.softmax(-1), 1)
    return found, torch.randn(x.shape[0], 3) + y


def distributions(x: Tensor) -> tuple[Tensor, ...]:
    y = LINEAR(x)
    drawn = torch.distributions.Categorical(logits=y)
    return drawn.log_prob(drawn.sample()), torch.distributions.Normal(y, 1.0).rsample()


def in_a_super_kernel(x: Tensor) -> tuple[Tensor, ...]:
    with kernelmill.scope.super_kernel("all", ""):
        return sampled_then_noise(x)


FUNCTIONS = [sampled_then_normal, sampled_then_noise, distributions, in_a_super_kernel]


def seeded(function: Function, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """What it gives, and what would be drawn next."""
    torch.manual_seed(3)
    return list(function(x)), torch.rand(1)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "dynamic", "gears"])
def test_draws_are_eagers(function: Function, mode: str) -> None:
    if function is in_a_super_kernel and mode == "dynamic":
        pytest.skip("super kernels have fixed sizes")
    backend = kernelmill.get_backend()
    if mode == "reduce-overhead":
        backend.config.mode = mode
    compiled: Any = torch.compile(function, backend=backend, dynamic=mode in ("dynamic", "gears"))
    x = torch.randn(4, 6)
    if mode == "gears":
        kernelmill.inference.set_dim_gears(x, {0: [4, 8]})
    with torch.no_grad():
        for _ in range(2):
            assert_close(seeded(compiled, x), seeded(function, x))
    assert not any(capture.refused for capture in backend.captures)


def test_gradients_of_draws_are_eagers() -> None:
    def loss(x: Tensor) -> Tensor:
        y = LINEAR(x)
        drawn = torch.distributions.Categorical(logits=y)
        noise = torch.distributions.Normal(y, 1.0).rsample()
        return (drawn.log_prob(drawn.sample())[:, None] * noise).sum()

    compiled: Any = torch.compile(loss, backend="kernelmill")
    x = torch.randn(4, 6)
    found: list[Tensor] = []
    for function in (compiled, loss):
        torch.manual_seed(3)
        (gradient,) = torch.autograd.grad(function(x), LINEAR.weight)
        found.append(gradient)
    assert_close(found[0], found[1])
