"""What parameters alone decide is computed when weights are packed, products too, and again when
one of the parameters has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import kernelmill
from kernelmill.backend.entry import Backend
from kernelmill.compiler.pipeline import Compiled
from kernelmill.plan.ir import Launch


class RelativePositions(nn.Module):
    """Scores against projections of learned positions."""

    launches = 2

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(40, 24))
        self.norm = nn.LayerNorm(24)
        self.project, self.query = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        return self.query(x) @ self.project(self.norm(self.positions)).t()


class LearnedQueries(nn.Module):
    """Queries of parameters look at what comes in."""

    launches = 2  # keys and values, attention

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(5, 24))
        self.query, self.both = nn.Linear(24, 24), nn.Linear(24, 48)

    def forward(self, x: Tensor) -> Tensor:
        keys, values = self.both(x).view(1, -1, 2, 2, 12).permute(2, 0, 3, 1, 4)
        queries = self.query(self.queries).view(1, 5, 2, 12).transpose(1, 2)
        return F.scaled_dot_product_attention(queries, keys, values)


class LowRank(nn.Module):
    """A weight with an addition of low rank."""

    launches = 1

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 24)
        self.up, self.down = nn.Parameter(torch.randn(24, 4)), nn.Parameter(torch.randn(4, 24))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.linear.weight + 0.5 * (self.up @ self.down), self.linear.bias)


class AddedProduct(nn.Module):
    """An element of a product of parameters, a normalised parameter and the input in one sum."""

    launches = 1

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(7, 4)), nn.Parameter(torch.randn(4, 24))
        self.row = nn.Parameter(torch.randn(24))

    def forward(self, x: Tensor) -> Tensor:
        return (x + torch.relu(self.up @ self.down)) * F.softmax(self.row, 0)


class ProductsForThemselves(nn.Module):
    """What is returned is new at each call, though parameters alone decide it."""

    launches = 2

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(7, 4)), nn.Parameter(torch.randn(4, 24))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        product = self.up @ self.down
        return product, (x + product) * 2


MODELS = [RelativePositions, LearnedQueries, LowRank, AddedProduct, ProductsForThemselves]


def close(found: object, expected: object, dtype: torch.dtype) -> None:
    torch.testing.assert_close(
        found, expected, atol=2e-4 if dtype == torch.float32 else 0.3, rtol=2e-2
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_as_eager_before_and_after_a_write(
    make: Callable[[], nn.Module], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    model, x = make().eval().to(dtype), torch.randn(7, 24).to(dtype)
    made: list[Compiled[Any]] = []
    compiled = torch.compile(model, backend=Backend(on_compiled=made.append))
    close(compiled(x), model(x), dtype)
    (plan,) = [each.lowered.plan for each in made]
    assert all(isinstance(step, Launch) for step in plan.steps)
    if dtype == torch.float32:
        assert len(plan.steps) == model.launches
    for parameter in model.parameters():
        parameter.mul_(-1.25)
        close(compiled(x), model(x), dtype)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)
    close(compiled(x), model(x), dtype)
    assert len(made) == 1


@torch.no_grad()
def test_a_result_belongs_to_the_caller() -> None:
    model = ProductsForThemselves().eval()
    compiled, x = kernelmill.compile(model), torch.randn(7, 24)
    first, _ = compiled(x)
    first.zero_()
    close(compiled(x), model(x), torch.float32)


@torch.no_grad()
def test_a_piece_of_varying_size_is_computed_at_each_call() -> None:
    model = RelativePositions().eval()

    def scores(x: Tensor) -> Tensor:
        return model.query(x) @ model.project(model.norm(model.positions[: len(x)])).t()

    compiled = torch.compile(scores, backend="kernelmill", dynamic=True)
    for rows in (7, 9, 3):
        x = torch.randn(rows, 24)
        close(compiled(x), scores(x), torch.float32)


def test_gradients_reach_the_parameters() -> None:
    model, x = RelativePositions(), torch.randn(7, 24)
    compiled = torch.compile(model, backend="kernelmill")
    compiled(x).sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    model(x).sum().backward()
    for grad, parameter in zip(found, model.parameters(), strict=True):
        close(grad, parameter.grad, torch.float32)
