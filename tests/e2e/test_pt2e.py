"""Models that PT2E has quantised: no operator runs in ATen, and products are those of integers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # defines the operators

import kernelmill
from tests.compiled import reported

Q = torch.ops.quantized_decomposed


def compiled(model: Callable[..., Any], *arguments: Tensor) -> Any:
    """The result; no operator runs in ATen."""
    backend, reports = reported()
    torch._dynamo.reset()
    with torch.no_grad():
        result = torch.compile(model, backend=backend, fullgraph=True)(*arguments)
    assert [report.fallbacks for report in reports] == [[]]
    return result


class Linear(nn.Module):
    """A linear layer as PT2E's conversion writes it; `zeros` are those of the weight."""

    def __init__(self, n: int, k: int, dtype: torch.dtype, zeros: str, unsigned: bool) -> None:
        super().__init__()
        low, high = (0, 255) if dtype == torch.uint8 else (-128, 127)
        self.ends = low, high, dtype
        self.input = (0, 255, torch.uint8) if unsigned else (-128, 127, torch.int8)
        self.zero = 131 if unsigned else -7
        self.register_buffer("weight", torch.randint(low, high + 1, (n, k)).to(dtype))
        self.register_buffer("scales", torch.rand(n) * 0.1)
        found = torch.randint(low, high, (n,)) if zeros == "some" else torch.zeros(n).long()
        self.register_buffer("zeros", found)
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x: Tensor) -> Tensor:
        numbers = Q.quantize_per_tensor(x, 0.03, self.zero, *self.input)
        wide = Q.dequantize_per_tensor(numbers, 0.03, self.zero, *self.input)
        weight = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, *self.ends)
        return nn.functional.linear(wide, weight, self.bias)

    def in_float64(self, x: Tensor) -> Tensor:
        numbers = Q.quantize_per_tensor(x, 0.03, self.zero, *self.input)
        wide = (numbers.double() - self.zero) * 0.03
        weight = (self.weight.double() - self.zeros[:, None]) * self.scales.double()[:, None]
        return wide @ weight.t() + self.bias.double()


@pytest.mark.parametrize("unsigned", [True, False])
@pytest.mark.parametrize("zeros", ["none", "some"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize(("n", "shape"), [(48, (1, 64)), (48, (5, 3, 70)), (8, (33, 128))])
def test_linear_layers(
    n: int, shape: Sequence[int], dtype: torch.dtype, zeros: str, unsigned: bool
) -> None:
    torch.manual_seed(0)
    model, x = Linear(n, shape[-1], dtype, zeros, unsigned), torch.randn(*shape) * 3
    result, exact = compiled(model, x), model.in_float64(x)
    eager = (model(x) - exact).abs().max()
    assert (result - exact).abs().max() <= 2 * eager + 1e-5 * exact.abs().max()


def test_a_weight_that_changes_counts() -> None:
    model, x = Linear(48, 64, torch.int8, "some", True), torch.randn(4, 64)
    method = kernelmill.compile(model)
    with torch.no_grad():
        method(x)
        for name, part in (("weight", 3), ("zeros", 1), ("scales", 0.5)):
            getattr(model, name).add_(part)
            torch.testing.assert_close(method(x), model(x), rtol=1e-4, atol=1e-3, msg=name)


VALUES = torch.tensor([0.0, -0.0, 0.015, 0.045, -0.015, 1e9, -1e9, 3.81, -3.84, float("inf"), 0.7])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_operators_give_eagers_numbers(dtype: torch.dtype) -> None:
    x = VALUES.to(dtype).repeat(3, 1)
    scales, zeros = torch.tensor([0.03, 0.5, 1e-3]), torch.tensor([3, 0, -5])

    def f(x: Tensor, scale: Tensor, zero: Tensor, scales: Tensor, zeros: Tensor) -> list[Tensor]:
        byte, signed = (0, 255, torch.uint8), (-128, 127, torch.int8)
        a = Q.quantize_per_tensor(x, 0.03, 7, *byte)
        b = Q.quantize_per_tensor(x, scale, zero, *signed)
        c = Q.quantize_per_channel(x, scales, zeros, 0, *signed)
        return [
            a, b, c,
            Q.dequantize_per_tensor(a, 0.03, 7, *byte),
            Q.dequantize_per_tensor(b, scale, zero, *signed),
            Q.dequantize_per_tensor(a, 0.03, 7, *byte, out_dtype=torch.bfloat16),
            Q.dequantize_per_channel(c, scales, zeros, 0, *signed),
            Q.dequantize_per_channel(c, scales, None, 0, *signed),
        ]  # fmt: skip

    arguments = x, torch.tensor(0.05), torch.tensor(-3), scales, zeros
    for got, wanted in zip(compiled(f, *arguments), f(*arguments), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_model_of_torchao() -> None:
    """Exported, prepared, calibrated and converted, with convolutions."""
    torchao = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    x86 = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16),
    ).eval()  # fmt: skip
    x = torch.randn(4, 3, 16, 16)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = torchao.prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    converted = torchao.convert_pt2e(prepared)
    with torch.no_grad():
        wanted = copy.deepcopy(converted)(x)
    # A sum at the border of two integers may become the other one.
    step = (wanted.max() - wanted.min()) / 100
    assert (compiled(converted, x) - wanted).abs().max() <= step
