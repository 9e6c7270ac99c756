"""Resized images: pixels are looked up along one axis after the other, or where channels come last
a pixel at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelmill.backend.entry import Backend
from kernelmill.compiler.pipeline import Compiled
from kernelmill.kernel.ir import Gather, statements_of
from kernelmill.plan.ir import Launch


def gathering(compiled: Compiled[Any]) -> set[str]:
    """Kernels that gather."""
    return {
        name
        for name, kernel in compiled.lowered.kernels.items()
        if any(isinstance(each, Gather) for each in statements_of(kernel.body))
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [(14, 22), (20, 5), (7, 11), (3, 40)], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@torch.no_grad()
def test_as_eager(mode: str, size: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 11).to(dtype)
    align = {} if mode == "nearest" else {"align_corners": size[0] > 10}
    for image in (x, x.to(memory_format=torch.channels_last)):

        def resize(y: Tensor) -> Tensor:
            return F.interpolate(y * 2, size, mode=mode, **align) + 1

        torch._dynamo.reset()
        found, expected = torch.compile(resize, backend="kernelmill")(image), resize(image)
        assert found.stride() == expected.stride()
        tolerance = 1e-4 if dtype == torch.float32 else 4e-2
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@torch.no_grad()
def test_only_columns_are_gathered() -> None:
    made: list[Compiled[Any]] = []
    torch._dynamo.reset()
    x = torch.randn(1, 8, 24, 32)
    torch.compile(
        lambda y: F.interpolate(y, scale_factor=2.0, mode="bilinear"),
        backend=Backend(on_compiled=made.append),
    )(x)
    plan = made[0].lowered.plan
    gathered = gathering(made[0])
    results = [
        max(plan.buffers[number].shape[-2:] for number in step.buffers if number >= 0)
        for step in plan.steps
        if isinstance(step, Launch) and step.kernel in gathered
    ]
    assert len(results) == 2  # of the columns before and behind, for rows of the image that comes


@torch.no_grad()
def test_a_buffer_that_keeps_a_resized_image() -> None:
    kept = torch.zeros(2, 3, 12, 14)

    def resize(x: Tensor) -> Tensor:
        kept.copy_(F.interpolate(x, scale_factor=2.0, mode="bilinear"))
        return kept * 2

    x = torch.randn(2, 3, 6, 7)
    made: list[Compiled[Any]] = []
    torch._dynamo.reset()
    found = torch.compile(resize, backend=Backend(on_compiled=made.append))(x)
    first = kept.clone()
    torch.testing.assert_close(found, resize(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(first, kept, atol=1e-5, rtol=1e-5)
    assert made


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)], ids=str)
@pytest.mark.parametrize("number", [2, 20])
@torch.no_grad()
def test_rows_and_columns_of_any_image(order: tuple[int, int, int], number: int) -> None:
    """Few of many pixels are looked up as they are, many by rows and columns."""
    torch.manual_seed(0)
    x = torch.randn(6, 5, 4).permute(order)
    rows = torch.randint(-x.shape[1], x.shape[1], (number, 1))
    columns = torch.randint(0, x.shape[2], (number,))

    def look_up(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return x[:, rows, columns]

    torch._dynamo.reset()
    found = torch.compile(look_up, backend="kernelmill")(x, rows, columns)
    expected = look_up(x, rows, columns)
    assert torch.equal(found, expected) and found.stride() == expected.stride()


@torch.no_grad()
def test_features_of_a_pyramid() -> None:
    """An image between convolutions stays channels last."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 16, 3, padding=1).eval(), nn.Conv2d(16, 16, 3, padding=1).eval()

    def pyramid(x: Tensor) -> Tensor:
        small = torch.relu(first(x))
        large = F.interpolate(small, scale_factor=2.0, mode="bilinear")
        return second(large).sum((2, 3))

    torch._dynamo.reset()
    made: list[Compiled[Any]] = []
    x = torch.randn(2, 3, 9, 10)
    found = torch.compile(pyramid, backend=Backend(on_compiled=made.append))(x)
    torch.testing.assert_close(found, pyramid(x), atol=1e-3, rtol=1e-3)
    assert not gathering(made[0])


@torch.no_grad()
def test_an_index_out_of_range_is_an_error() -> None:
    rows, columns = torch.tensor([[0], [9]]), torch.tensor([0, 1])

    def look_up(x: Tensor) -> Tensor:
        return x[:, rows, columns]

    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        torch.compile(look_up, backend="kernelmill")(torch.randn(2, 4, 4))
    rows[1] = -1
    x = torch.randn(2, 4, 4)
    torch.testing.assert_close(torch.compile(look_up, backend="kernelmill")(x), look_up(x))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "prod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@torch.no_grad()
def test_scatter_of_whole_rows(reduce: str, dtype: torch.dtype) -> None:
    """An index that is expanded over the other dims addresses rows."""
    torch.manual_seed(0)
    index = torch.randint(0, 9, (40,))
    for dim, shape, source in ((0, (9, 12), (40, 12)), (1, (3, 9, 5), (3, 40, 5))):
        values = torch.randint(-3, 4, source).to(dtype)
        spread = index.view([-1 if d == dim else 1 for d in range(len(shape))])

        def scatter(x: Tensor, i: Tensor, v: Tensor, dim: int = dim) -> Tensor:
            return x.scatter_reduce(dim, i.expand_as(v), v, reduce)

        x = torch.randint(-3, 4, shape).to(dtype)
        torch._dynamo.reset()
        found = torch.compile(scatter, backend="kernelmill")(x, spread, values)
        torch.testing.assert_close(found, scatter(x, spread, values))
    with pytest.raises((IndexError, RuntimeError)):
        torch.compile(scatter, backend="kernelmill")(x, spread + 5, values)


@torch.no_grad()
def test_one_convolution_of_an_image_that_comes_channels_last() -> None:
    torch.manual_seed(0)
    for model in (nn.Conv2d(16, 24, 3, padding=1), nn.Conv2d(16, 16, 7, padding=3, groups=16)):
        x = torch.randn(2, 16, 9, 10).to(memory_format=torch.channels_last)
        made: list[Compiled[Any]] = []
        torch._dynamo.reset()
        found = torch.compile(model.eval(), backend=Backend(on_compiled=made.append))(x)
        expected = model(x)
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        plan = made[0].lowered.plan
        assert len(plan.steps) == 1 and plan.prepare
