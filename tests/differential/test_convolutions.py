"""Convolutions of three axes and transposed ones: eager's results, from kernels where they pay."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.compiled import reported
from tests.e2e.conftest import BACKEND
from tests.tolerances import assert_close

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def compiled(module: nn.Module, *args: Tensor, dynamic: bool = False) -> tuple[Any, list[str]]:
    """What the compiled module gives, and the reasons of what fell back to ATen."""
    torch._dynamo.reset()
    backend, reports = reported(BACKEND)
    with torch.no_grad():
        result = torch.compile(module, backend=backend, dynamic=dynamic, fullgraph=True)(*args)
    return result, [reason for report in reports for _, reason, _ in report.fallbacks]


def agree(module: nn.Module, x: Tensor) -> list[str]:
    with torch.no_grad():
        expected = module(x)
    actual, fallbacks = compiled(module, x)
    assert_close(actual, expected)
    assert actual.stride() == expected.stride()
    return fallbacks


def _whole(module: nn.Module) -> nn.Module:
    """With small whole numbers for weights, whose sums are exact in every order."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    return module


@st.composite
def transposed(draw: st.DrawFn) -> tuple[nn.Module, Tensor, bool]:
    """A transposed convolution, its input, and whether it is one that kernels compute."""
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    groups = draw(st.sampled_from((1, 1, 2)))
    per_axis = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    stride = per_axis(1, 3)
    taps = [s * n for s, n in zip(stride, per_axis(1, 2), strict=True)]
    taps = draw(st.sampled_from((taps, taps, per_axis(1, 4))))
    dilation = draw(st.sampled_from(([1] * rank, per_axis(1, 2))))
    reach = [d * (k - 1) for d, k in zip(dilation, taps, strict=True)]
    padding = [draw(st.integers(0, r + 1)) for r in reach]
    more = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    # No image that padding leaves nothing of.
    sizes = [n + 2 * p for n, p in zip(per_axis(1, 6), padding, strict=True)]
    module = TRANSPOSED[rank](
        groups * draw(st.integers(1, 5)), groups * draw(st.sampled_from((1, 3, 16))), taps, stride,
        padding, more, groups, draw(st.booleans()), dilation,
    )  # fmt: skip
    x = torch.randint(-2, 3, (draw(st.integers(1, 2)), module.in_channels, *sizes))
    divides = all(k % s == 0 for k, s in zip(taps, stride, strict=True))
    few = math.prod(stride) <= 4 and all(k >= s for k, s in zip(taps, stride, strict=True))
    mixes = any(s > 1 and (d > 1 or groups > 1) for s, d in zip(stride, dilation, strict=True))
    return _whole(module), x.float(), (divides or few) and not mixes


@settings(max_examples=12)
@given(transposed(), st.sampled_from((torch.float32, torch.float32, torch.bfloat16)))
def test_transposed_convolutions(case: tuple[nn.Module, Tensor, bool], dtype: torch.dtype) -> None:
    module, x, ours = case
    fallbacks = agree(module.to(dtype), x.to(dtype))
    assert bool(fallbacks) == (not ours), fallbacks


@pytest.mark.parametrize(
    ("taps", "stride", "padding", "more"),
    [((3,), (2,), 1, 1), ((5,), (3,), 2, 0), ((3, 3), (2, 2), 1, 1), ((5, 3), (2, 2), 0, 0),
     ((4, 3), (1, 2), 2, 0), ((3, 1, 3), (2, 1, 2), 0, 1)],
)  # fmt: skip
def test_strides_that_do_not_divide_the_window(
    taps: tuple[int, ...], stride: tuple[int, ...], padding: int, more: int
) -> None:
    more_per_axis = [more if s > 1 else 0 for s in stride]
    kind = TRANSPOSED[len(taps)]
    for channels, bias in ((3, True), (16, False)):
        module = _whole(kind(channels, 8, taps, stride, padding, more_per_axis, bias=bias))
        x = torch.randint(-2, 3, (2, channels, *(5, 6, 4)[: len(taps)])).float()
        assert agree(module, x) == []


@pytest.mark.parametrize(("taps", "stride"), [(2, 3), (4, 3)])
def test_many_phases_with_different_taps_are_left_to_aten(taps: int, stride: int) -> None:
    assert len(agree(nn.ConvTranspose2d(3, 4, taps, stride), torch.randn(1, 3, 5, 5))) == 1


@st.composite
def deep(draw: st.DrawFn) -> tuple[nn.Module, Tensor, bool]:
    """A convolution of three axes, its input, and whether it is one that kernels compute."""
    channels, style = draw(st.sampled_from((1, 3, 16))), draw(st.sampled_from(("", "", "d", "g")))
    groups = channels if style == "d" else 1
    channels, groups = (2 * channels, 2) if style == "g" else (channels, groups)
    outs = channels if style == "d" else groups * draw(st.sampled_from((1, 12, 16)))
    taps, stride, dilation = ([draw(st.integers(1, n)) for _ in range(3)] for n in (3, 2, 2))
    padding = [draw(st.integers(0, 2)) for _ in range(3)]
    sizes = [d * (k - 1) + draw(st.integers(1, 5)) for d, k in zip(dilation, taps, strict=True)]
    bias = draw(st.booleans())
    module: nn.Module = nn.Conv3d(channels, outs, taps, stride, padding, dilation, groups, bias)
    x = torch.randint(-2, 3, (draw(st.integers(1, 2)), channels, *sizes)).float()
    single = taps == [1, 1, 1] and stride == [1, 1, 1] and padding == [0, 0, 0]
    if draw(st.booleans()):  # two of them are stored channels last
        more = nn.Conv3d(outs, draw(st.sampled_from((12, 20))), (1, 2, 2), padding=(1, 0, 1))
        module = nn.Sequential(module, nn.ReLU(), nn.ZeroPad3d((0, 0, 1, 0, 0, 0)), more)
    if draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last_3d)
    return _whole(module), x, groups == 1 or groups == channels == outs or single


@settings(max_examples=12)
@given(deep(), st.sampled_from((torch.float32, torch.float32, torch.bfloat16, torch.float16)))
def test_convolutions_of_three_axes(
    case: tuple[nn.Module, Tensor, bool], dtype: torch.dtype
) -> None:
    module, x, ours = case
    fallbacks = agree(module.to(dtype), x.to(dtype))
    assert bool(fallbacks) == (not ours), fallbacks


# Made in the tests, which draw the same weights in each run.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Sequence[int]]] = {
    "generator": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(8, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 2, 2),
            nn.Tanh(),
        ),
        (2, 8, 1, 1),
    ),
    "volume": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(16, 24, 3, 2, 1),
            nn.BatchNorm3d(24), nn.ReLU(), nn.ConvTranspose3d(24, 4, 2, 2),
        ),
        (1, 1, 12, 12, 12),
    ),
    "vocoder": (
        lambda: nn.Sequential(
            nn.ConvTranspose1d(16, 12, 8, 4, 2), nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(12, 12, 4, 2, 1), nn.LeakyReLU(0.1), nn.Conv1d(12, 1, 7, padding=3),
        ),
        (1, 16, 20),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    make, shape = NETWORKS[name]
    assert not agree(make().eval(), torch.randn(shape))


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients(name: str) -> None:
    make, shape = NETWORKS[name]
    model = make()
    ours, theirs = copy.deepcopy(model), copy.deepcopy(model)
    x = torch.randn(shape)
    torch.compile(ours, backend=BACKEND)(x).square().sum().backward()
    theirs(x).square().sum().backward()
    exact = copy.deepcopy(model).double()
    exact(x.double()).square().sum().backward()
    for a, b, c in zip(ours.parameters(), theirs.parameters(), exact.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        assert_close(a.grad, b.grad, c.grad)


def test_infinities_stay_where_they_are() -> None:
    for module, shape in (
        (nn.ConvTranspose2d(3, 4, 4, 2, 1), (1, 3, 6, 6)),
        (nn.ConvTranspose2d(3, 4, 3, 2, 1), (1, 3, 6, 6)),
        (nn.Conv3d(3, 4, 3, padding=1), (1, 3, 4, 6, 6)),
    ):
        x = torch.randn(shape)
        x.view(-1)[40], x.view(-1)[71] = torch.inf, torch.nan
        agree(module, x)


@pytest.mark.parametrize("module", [nn.ConvTranspose2d(3, 16, 4, 2, 1), nn.Conv3d(3, 16, 3)])
def test_sizes_that_vary(module: nn.Module) -> None:
    """The number of images may be any; where images vary ATen computes."""
    sizes = (9,) * (module.weight.dim() - 2)
    x = torch.randn(2, 3, *sizes)
    torch._dynamo.reset()
    backend, reports = reported(BACKEND)
    with torch.no_grad():
        function = torch.compile(module, backend=backend)
        torch._dynamo.mark_dynamic(x, 0)
        assert_close(function(x), module(x))
        other = torch.randn(5, 3, *sizes)
        assert_close(function(other), module(other))
        assert len(reports) == 1 and not reports[0].fallbacks
        larger = torch.randn(2, 3, *(size + 1 for size in sizes))
        assert_close(function(larger), module(larger))


@pytest.mark.parametrize(
    ("rank", "taps", "stride", "reason"),
    [
        (1, 4, 2, ""), (2, 2, 2, ""), (2, 4, 2, ""), (3, 2, 2, ""),
        (2, 3, 2, "phases with different taps"), (2, 3, 1, "stride 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_transposed_weight_that_changes_is_compiled_where_phases_have_as_many_taps(
    rank: int, taps: int, stride: int, reason: str, dynamic: bool
) -> None:
    run = getattr(torch.nn.functional, f"conv_transpose{rank}d")

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return run(x, weight, bias, stride=stride, padding=1)

    torch._dynamo.reset()
    backend, reports = reported()
    call = torch.compile(function, backend=backend, dynamic=False)
    weight, bias = torch.randn(3, 4, *[taps] * rank), torch.randn(4)
    for images in (1, 2, 3) if dynamic else (2, 2):
        x = torch.randn(images, 3, *[5] * rank)
        if dynamic and images > 1:
            torch._dynamo.mark_dynamic(x, 0)
        weight = weight + 1
        exact = function(x.double(), weight.double(), bias.double())
        torch.testing.assert_close(call(x, weight, bias).double(), exact, rtol=1e-4, atol=1e-4)
    reasons = [reason for report in reports for _, reason, _ in report.fallbacks]
    assert bool(reasons) == bool(reason) and all(reason in each for each in reasons)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(0, 0, 0), (2, 0, 3, 3), (0, 3, 3)])
def test_convolutions_of_no_channels_give_none(
    shape: tuple[int, ...], dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMILL_STRICT", "1")

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x * 2, weight, None, 1, 1)

    torch._dynamo.reset()
    backend, reports = reported()
    x, weight = torch.randn(shape), torch.randn(2, 0, 1, 1)
    actual = torch.compile(function, backend=backend, dynamic=dynamic)(x, weight)
    assert actual.shape == function(x, weight).shape and actual.shape[-3] == 0
    ((_, reason, _),) = reports[0].fallbacks
    assert reason == "convolution of no channels"
