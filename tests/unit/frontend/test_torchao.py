"""Models whose weights torchao has quantised: no float copy of a weight, results within the error
of the dequantised weight in float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("torchao")

from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
from torchao.quantization import (
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerGroup,
    PerRow,
    PerTensor,
    quantize_,
)
from torchao.utils import unwrap_tensor_subclass

import kernelmill
from kernelmill import aot
from kernelmill.inference import cache_compile

K, N = 256, 80
ASYMMETRIC = MappingType.ASYMMETRIC


def int8(granularity: Any) -> Any:
    return Int8WeightOnlyConfig(granularity=granularity, set_inductor_config=False)


def int4(group: int) -> Any:
    return PrototypeInt4WeightOnlyConfig(group_size=group, set_inductor_config=False)


LAYOUTS = {
    "int8 rows": int8(PerRow()),
    "int8 tensor": int8(PerTensor()),
    "int8 groups of 32": int8(PerGroup(32)),
    "int8 groups of 128": int8(PerGroup(128)),
    "int4 groups of 32": int4(32),
    "int4 groups of 128": int4(128),
    "intx symmetric": IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
    "intx asymmetric": IntxWeightOnlyConfig(torch.int4, PerGroup(128), ASYMMETRIC),
}


@dataclass
class Layer:
    """A quantised linear layer and its weight in float64."""

    model: nn.Module
    weight: Tensor
    bias: Tensor | None

    def assert_right(self, found: Tensor, x: Tensor) -> None:
        exact = x.double() @ self.weight.T
        exact = exact if self.bias is None else exact + self.bias.double()
        # Sums of K products, each of a weight that eager rounds too.
        step = torch.finfo(x.dtype).eps
        allowed = 4 * step * (x.double().abs() @ self.weight.T.abs()) / K**0.5 + step * exact.abs()
        assert found.dtype == x.dtype and (found.double() - exact).abs().le(allowed + 1e-6).all()


def layer(name: str, dtype: torch.dtype, bias: bool = True) -> Layer:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(K, N, bias=bias)).to(dtype).eval()
    quantize_(model, LAYOUTS[name])
    return Layer(model, dequantised(model[0].weight), model[0].bias)


def dequantised(weight: Any) -> Tensor:
    """A quantised weight (n, k) in float64."""
    if hasattr(weight, "scale_and_zero"):
        scale, zero = weight.scale_and_zero.float().unbind(-1)
        group = weight.block_size[1]
        ones = torch.zeros_like(weight.scale_and_zero, dtype=torch.float32)
        ones[..., 0] = 1
        numbers = torch.ops.aten._weight_int4pack_mm_for_cpu(
            torch.eye(weight.shape[1]), weight.qdata, group, ones
        )
        spread = [v.double().repeat_interleave(group, 0) for v in (scale, zero)]
        return (numbers.double() * spread[0] + spread[1]).T
    sizes = [a // b for a, b in zip(weight.shape, weight.scale.shape, strict=True)]
    scale, zero = weight.scale, torch.zeros_like(weight.scale)
    if getattr(weight, "zero_point", None) is not None:
        zero = weight.zero_point
    spread = [
        v.double().repeat_interleave(sizes[0], 0).repeat_interleave(sizes[1], 1)
        for v in (scale, zero)
    ]
    return (weight.qdata.double() - spread[1]) * spread[0]


def compiled(model: nn.Module, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str, dtype: torch.dtype) -> None:
    one = layer(name, dtype)
    run = compiled(one.model)
    with torch.no_grad():
        x = torch.randn(1, K, dtype=dtype)
        one.assert_right(run(x), x)
        found = kernelmill.explain(one.model, x).as_dict()
    assert found["fallbacks"] == []
    (packed,) = [program["memory"]["packed"] for program in found["programs"]]
    filled = 96 * K  # columns to whole panels
    assert packed <= filled * (0.8 if "int4" in name else 1.3), "no float copy of the weight"


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_that_vary(name: str) -> None:
    one = layer(name, torch.bfloat16, bias=False)
    run = compiled(one.model, dynamic=True)
    with torch.no_grad():
        for rows in (5, 2, 3, 4, 40, 0):
            x = torch.randn(rows, K, dtype=torch.bfloat16)
            one.assert_right(run(x), x)


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 9])
def test_int4_of_each_number_of_rows(rows: int) -> None:
    one = layer("int4 groups of 32", torch.bfloat16)
    x = torch.randn(rows, K, dtype=torch.bfloat16)
    with torch.no_grad():
        one.assert_right(compiled(one.model)(x), x)


class Cached(nn.Module):
    """A layer behind a cached method."""

    def __init__(self, inner: nn.Module, folder: Path) -> None:
        super().__init__()
        self.inner = inner
        self.cached = cache_compile(self.step, cache_dir=str(folder))

    def step(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.parametrize("name", ["int8 rows", "int8 groups of 32", "int4 groups of 32"])
def test_unwrapped_weights_are_cached_and_exported(name: str, tmp_path: Path) -> None:
    one = layer(name, torch.bfloat16)
    unwrap_tensor_subclass(one.model)
    tmp_path.chmod(0o700)
    x = torch.randn(2, K, dtype=torch.bfloat16)
    with torch.no_grad():
        model = Cached(one.model, tmp_path / "cache")
        one.assert_right(model.cached(x), x)
        assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
        again = Cached(one.model, tmp_path / "cache")
        one.assert_right(again.cached(x), x)
        assert again.cached.statistics == {"loaded": 1, "traced": 0, "uncached": 0}
        file = aot.compile(one.model, (x,), path=tmp_path / "layer.kmill")
        one.assert_right(aot.load(file)(x), x)


def test_wrapped_weights_are_refused_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = layer("int8 rows", torch.bfloat16)
    x = torch.randn(2, K, dtype=torch.bfloat16)
    with torch.no_grad():
        one.assert_right(Cached(one.model, tmp_path / "cache").cached(x), x)
    assert "says how to unwrap torchao's" in caplog.text
