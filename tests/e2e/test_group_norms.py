"""Norms of groups of channels: where the images around them have their channels last, so have what
the norm reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.backend.entry import Backend
from kernelmill.compiler.pipeline import Compiled
from kernelmill.plan.ir import Launch


class HandWritten(nn.Module):
    """As models have it that were written before GroupNorm was."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight, self.bias = (
            nn.Parameter(torch.randn(channels)),
            nn.Parameter(torch.randn(channels)),
        )

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        grouped = x.reshape(n, self.groups, c // self.groups, h * w)
        mean = grouped.mean((2, 3), keepdim=True)
        variance = grouped.var((2, 3), keepdim=True, unbiased=False)
        normal = ((grouped - mean) / torch.sqrt(variance + 1e-5)).reshape(n, c, h, w)
        return normal * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


def plain(groups: int, channels: int) -> nn.Module:
    return nn.GroupNorm(groups, channels, affine=False)


def stack(norm: Callable[[int, int], nn.Module], groups: int, channels: int) -> nn.Module:
    """Convolutions, each behind a norm."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), norm(groups, channels), nn.SiLU(),
        nn.Conv2d(channels, channels, 3, padding=1), norm(groups, channels), nn.SiLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
    ).eval()  # fmt: skip


Call = Callable[[Tensor], Tensor]


def compiled(model: Call, dynamic: bool | None = None) -> tuple[Call, list[Compiled[Any]]]:
    made: list[Compiled[Any]] = []
    torch._dynamo.reset()
    return torch.compile(model, backend=Backend(on_compiled=made.append), dynamic=dynamic), made


def close(found: Tensor, expected: Tensor) -> None:
    tolerance = 1e-3 if expected.dtype == torch.float32 else 6e-2
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("norm", [nn.GroupNorm, plain, HandWritten])
@pytest.mark.parametrize(("groups", "channels"), [(1, 32), (32, 32), (8, 32), (4, 24), (3, 48)])
@torch.no_grad()
def test_between_convolutions(
    norm: Callable[[int, int], nn.Module], groups: int, channels: int
) -> None:
    torch.manual_seed(0)
    model, x = stack(norm, groups, channels), torch.randn(2, 3, 13, 11)
    call, made = compiled(model)
    close(call(x), model(x))
    lowered = made[0].lowered
    launches = [step for step in lowered.plan.steps if isinstance(step, Launch)]
    assert len(launches) == len(lowered.plan.steps)
    templates = [lowered.facts[launch.kernel].template for launch in launches]
    assert templates.count("convolution") == 3
    in_groups = [b.shape for b in lowered.plan.buffers if 13 * 11 in b.shape]
    assert not in_groups


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_half_types(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = stack(nn.GroupNorm, 8, 32).to(dtype), torch.randn(2, 3, 9, 16).to(dtype)
    close(compiled(model)[0](x), model(x))


@pytest.mark.parametrize("shape", [(2, 64, 8, 9), (1, 48, 5, 5), (3, 16, 1, 7), (0, 16, 4, 4)])
@pytest.mark.parametrize("groups", [1, 8, 16])
@torch.no_grad()
def test_an_image_that_comes_channels_last(shape: tuple[int, ...], groups: int) -> None:
    torch.manual_seed(0)
    model = nn.GroupNorm(groups, shape[1]).eval()
    x = torch.randn(shape).to(memory_format=torch.channels_last)
    close(compiled(model)[0](x), model(x))
    nn.init.normal_(model.weight)

    def between(y: Tensor) -> Tensor:
        return torch.relu(model(y * 2))

    close(compiled(between)[0](x), between(x))


@torch.no_grad()
def test_large_means() -> None:
    """The deviation is that from the mean of the group."""
    torch.manual_seed(0)
    model = nn.GroupNorm(4, 32).eval()
    x = (torch.randn(2, 32, 16, 16) + 1000).to(memory_format=torch.channels_last)
    expected = nn.GroupNorm(4, 32).double()(x.double())
    torch.testing.assert_close(
        compiled(model)[0](x).double(), expected, atol=1e-3, rtol=1e-3, check_dtype=False
    )


@torch.no_grad()
def test_sizes_that_vary() -> None:
    torch.manual_seed(0)
    model = stack(nn.GroupNorm, 8, 32)
    call, made = compiled(model, dynamic=True)
    for size in (12, 16, 9):
        x = torch.randn(2, 3, size, size + 3)
        close(call(x), model(x))
    assert len(made) == 1


@torch.no_grad()
def test_one_image_of_a_few_groups_whose_sums_are_cut() -> None:
    torch.manual_seed(0)
    model, x = stack(nn.GroupNorm, 2, 32), torch.randn(1, 3, 80, 80)
    close(compiled(model)[0](x), model(x))


def test_training() -> None:
    torch.manual_seed(0)
    model, x = stack(nn.GroupNorm, 4, 16).train(), torch.randn(2, 3, 9, 9)
    call, _ = compiled(model)
    call(x).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    model(x).square().sum().backward()
    for grad, parameter in zip(found, model.parameters(), strict=True):
        assert grad is not None
        torch.testing.assert_close(grad, parameter.grad, atol=2e-3, rtol=2e-3)


class Watched(nn.Module):
    """Keeps what its norm has made last."""

    means: Tensor
    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)
        self.norm = nn.GroupNorm(4, 16)
        self.register_buffer("means", torch.zeros(2, 16))
        self.register_buffer("kept", torch.zeros(2, 16, 7, 7))

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(self.first(x))
        self.means.copy_(normal.mean((2, 3)))
        self.kept.copy_(normal)
        return self.second(torch.relu(normal))


@torch.no_grad()
def test_buffers_that_are_written_behind_a_norm() -> None:
    torch.manual_seed(0)
    model, x = Watched().eval(), torch.randn(2, 3, 9, 9)
    call, made = compiled(model)
    found = call(x)
    means, kept = model.means.clone(), model.kept.clone()
    close(found, model(x))
    close(means, model.means)
    close(kept, model.kept)
    assert all(isinstance(step, Launch) for step in made[0].lowered.plan.steps)
