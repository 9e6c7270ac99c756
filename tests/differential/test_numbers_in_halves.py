"""Python numbers beside half types are rounded where eager rounds them, and powers of a half keep
eager's zeros and infinities."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

NUMBER = 1.7  # no half type has it, nor the sum of two that do

COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x + NUMBER,
    "difference": lambda x: NUMBER - x,
    "sum with a tensor of one": lambda x: x + torch.tensor(NUMBER),
    "product": lambda x: x * NUMBER,
    "quotient": lambda x: x / NUMBER,
    "whole quotient": lambda x: x // NUMBER,
    "rest": lambda x: x % NUMBER,
    "rest with its sign": lambda x: torch.fmod(x, NUMBER),
    "comparison": lambda x: x > NUMBER,
    "power": lambda x: x.abs() ** NUMBER,
    "root": lambda x: x**0.5,
    "inverse root": lambda x: x**-0.5,
    "bounds": lambda x: x.clamp(-NUMBER, NUMBER),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", COMPUTED)
def test_numbers_count_as_in_eager(name: str, dtype: torch.dtype) -> None:
    edges = torch.tensor([float("inf"), float("-inf"), 0.0, -0.0, NUMBER, -NUMBER])
    drawn = 3 * torch.randn(250, generator=torch.Generator().manual_seed(0))
    x = torch.cat([drawn, edges]).to(dtype)
    torch._dynamo.reset()
    ours = torch.compile(COMPUTED[name], backend="kernelmill", fullgraph=True)(x)
    theirs = COMPUTED[name](x)
    assert ours.dtype == theirs.dtype
    # Of equals the zero's sign counts.
    same = (ours == theirs) & (ours.signbit() == theirs.signbit()) | (ours.isnan() & theirs.isnan())
    assert x[~same].tolist() == []


def test_a_hinge_has_eagers_gradient_at_its_edge() -> None:
    def loss(a: Tensor) -> Tensor:
        ones = torch.ones_like(a)
        return torch.nn.functional.margin_ranking_loss(a, torch.zeros_like(a), ones, margin=NUMBER)

    gradients: list[list[float]] = []
    for function in (loss, torch.compile(loss, backend="kernelmill", fullgraph=True)):
        a = torch.full((2,), 1.703125, dtype=torch.bfloat16, requires_grad=True)
        function(a).backward()
        assert a.grad is not None
        gradients.append(a.grad.tolist())
    assert gradients[1] == gradients[0]
