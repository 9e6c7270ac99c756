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
from kernelmill.backend.entry import Backend
from kernelmill.core.dtype import I8

Q = torch.ops.quantized_decomposed


def compiled(model: Callable[..., Any], *arguments: Tensor, integers: int | None = None) -> Any:
    """The result; no operator runs in ATen, and so many products are those of integers."""
    made: list[Any] = []
    torch._dynamo.reset()
    backend = Backend(on_compiled=made.append)
    with torch.no_grad():
        result = torch.compile(model, backend=backend, fullgraph=True)(*arguments)
    (program,) = made
    assert program.report.fallbacks == []
    products = [n for n in program.draft.graph.nodes if n.op in ("matmul", "conv")]
    found = [n for n in products if n.operands[0].dtype == n.operands[1].dtype == I8]
    assert integers in (None, len(found))
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
    result = compiled(model, x, integers=int(n >= 16))
    exact = model.in_float64(x)
    eager = (model(x) - exact).abs().max()
    assert (result - exact).abs().max() <= 2 * eager + 1e-5 * exact.abs().max()


class Convolution(nn.Module):
    """A convolution as PT2E's conversion writes it, its images as numbers of steps of 2**-4."""

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype, zeros: str, unsigned: bool, **geometry: Any
    ) -> None:
        super().__init__()
        low, high = (0, 255) if dtype == torch.uint8 else (-128, 127)
        self.ends = low, high, dtype
        self.input = (0, 255, torch.uint8) if unsigned else (-128, 127, torch.int8)
        self.zero = 118 if unsigned else 9
        self.register_buffer("weight", torch.randint(low, high + 1, shape).to(dtype))
        self.register_buffer("scales", 2.0 ** torch.randint(-9, -4, shape[:1]))
        found = torch.randint(low, high, shape[:1]) if zeros == "some" else torch.zeros(shape[0])
        self.register_buffer("zeros", found.long())
        self.call = nn.functional.conv1d if len(shape) == 3 else nn.functional.conv2d
        self.geometry = geometry

    def forward(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        numbers = Q.quantize_per_tensor(x, 2**-4, self.zero, *self.input)
        wide = Q.dequantize_per_tensor(numbers, 2**-4, self.zero, *self.input)
        weight = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, *self.ends)
        return self.call(wide.to(dtype), weight.to(dtype), **self.geometry).relu()


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("unsigned", [True, False])
@pytest.mark.parametrize(
    ("zeros", "dtype"), [("none", torch.int8), ("some", torch.int8), ("some", torch.uint8)]
)
@pytest.mark.parametrize(
    ("shape", "sizes", "geometry"),
    [
        ((24, 16, 1, 1), (2, 16, 6, 5), {}),
        ((40, 20, 3, 3), (2, 20, 7, 6), {"padding": 1}),
        ((17, 16, 3, 2), (1, 16, 9, 8), {"padding": (2, 1), "stride": 2, "dilation": (1, 2)}),
        ((16, 24, 5), (3, 24, 11), {"padding": 2, "stride": 2}),
    ],
)
def test_convolutions(
    shape: Sequence[int], sizes: Sequence[int], geometry: dict[str, Any], dtype: torch.dtype,
    zeros: str, unsigned: bool, last: bool,
) -> None:  # fmt: skip
    """Sums are exact, and scales powers of two: the results are those of floats, to the bit."""
    torch.manual_seed(0)
    model, x = Convolution(shape, dtype, zeros, unsigned, **geometry), torch.randn(*sizes) * 6
    if last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(compiled(model, x, integers=1), model(x, torch.float64).float())


@pytest.mark.parametrize(
    ("shape", "sizes", "geometry"),
    [
        ((24, 3, 3, 3), (1, 3, 8, 8), {}),
        ((15, 16, 3, 3), (1, 16, 8, 8), {}),
        ((32, 16, 3, 3), (1, 32, 8, 8), {"groups": 2}),
        ((32, 1, 3, 3), (1, 32, 8, 8), {"groups": 32}),
        ((16, 2048, 3, 3), (1, 2048, 3, 3), {}),
    ],
    ids=["few channels", "few outputs", "groups", "depthwise", "sums that could be too large"],
)
def test_convolutions_of_floats(
    shape: Sequence[int], sizes: Sequence[int], geometry: dict[str, Any]
) -> None:
    torch.manual_seed(1)
    model, x = Convolution(shape, torch.int8, "some", True, **geometry), torch.randn(*sizes)
    found, wanted = compiled(model, x, integers=0), model(x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "x",
    [
        torch.randn(3, 40) * 3, torch.rand(5) + 1, -torch.rand(2, 2, 3), torch.zeros(4),
        torch.tensor([2.5, float("nan")]), torch.tensor([1.0, float("inf")]),
        torch.full((3,), 1e-30), torch.randn(300, 300),
    ],
    ids=["both signs", "above", "below", "zeros", "nan", "infinite", "tiny", "many"],
)  # fmt: skip
def test_ranges_that_a_call_finds(x: Tensor, dtype: torch.dtype) -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [
            *Q.choose_qparams(x, 0, 255, 2**-12, torch.uint8),
            *Q.choose_qparams(x, -128, 127, 1e-7, torch.int8),
            *Q.choose_qparams_symmetric(x, -127, 127, 2**-12, torch.int8),
            *Q.choose_qparams_symmetric(x, 0, 127, 2**-12, torch.uint8),
        ]

    x = x.to(dtype)
    for found, wanted in zip(compiled(f, x), f(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


class Dynamic(Linear):
    """A linear layer whose range each call finds."""

    def forward(self, x: Tensor) -> Tensor:
        choose = Q.choose_qparams_symmetric if self.zero < 0 else Q.choose_qparams
        scale, zero = choose(x, *self.input[:2], 2**-12, self.input[2])
        numbers = Q.quantize_per_tensor(x, scale, zero, *self.input)
        wide = Q.dequantize_per_tensor(numbers, scale, zero, *self.input)
        weight = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, *self.ends)
        return nn.functional.linear(wide, weight, self.bias)


@pytest.mark.parametrize("unsigned", [True, False])
@pytest.mark.parametrize("zeros", ["none", "some"])
@pytest.mark.parametrize("shape", [(1, 64), (5, 3, 70), (33, 128)])
def test_layers_whose_ranges_calls_find(shape: Sequence[int], zeros: str, unsigned: bool) -> None:
    torch.manual_seed(0)
    model = Dynamic(48, shape[-1], torch.int8, zeros, unsigned)
    for x in (torch.randn(*shape) * 3, torch.rand(*shape) + 1, torch.zeros(shape)):
        found, wanted = compiled(model, x, integers=1), model(x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
    x[..., 3] = float("nan")
    assert compiled(model, x, integers=1).isnan().all()


def test_zeros_that_nothing_clamps_are_not_multiplied_as_integers() -> None:
    torch.manual_seed(0)
    model, ends = Linear(48, 64, torch.int8, "none", False), (-128, 127, torch.int8)

    def f(x: Tensor, zero: Tensor) -> Tensor:
        wide = Q.dequantize_per_tensor(x, torch.tensor(0.5), zero, *ends)
        weight = Q.dequantize_per_channel(model.weight, model.scales, model.zeros, 0, *ends)
        return nn.functional.linear(wide, weight)

    x, zero = torch.randint(-128, 128, (4, 64)).to(torch.int8), torch.tensor(2**30)
    torch.testing.assert_close(compiled(f, x, zero, integers=0), f(x, zero), rtol=1e-4, atol=1e3)


def converted(model: nn.Module, x: Tensor, is_dynamic: bool) -> Any:
    """The model as torchao exports, prepares, calibrates and converts it."""
    torchao = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    x86 = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    quantizer = x86.X86InductorQuantizer()
    settings = x86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic)
    quantizer.set_global(settings)
    prepared = torchao.prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    return torchao.convert_pt2e(prepared)


@pytest.mark.parametrize("images", [True, False])
def test_models_of_torchao(images: bool) -> None:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16),
    ]  # fmt: skip
    model = nn.Sequential(*layers[0 if images else 6 :]).eval()
    x = torch.randn(4, 3, 16, 16) if images else torch.randn(4, 32)
    quantised = converted(model, x, is_dynamic=not images)
    with torch.no_grad():
        wanted = copy.deepcopy(quantised)(x)
    # A sum at the border of two integers may become the other one.
    step = (wanted.max() - wanted.min()) / 100
    found = compiled(quantised, x, integers=3 if images else 2)
    assert (found - wanted).abs().max() <= step
