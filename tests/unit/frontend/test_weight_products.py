"""ATen's products with packed weights: taken apart, or left to ATen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import kernelmill
from tests.tolerances import mismatch


class Int8(nn.Module):
    def __init__(self, n: int, k: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (n, k)).to(torch.int8))
        self.register_buffer("scale", (2.0 ** torch.randint(-9, -5, (n,))).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("m", [1, 5, 20])
def test_int8(m: int, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    model = Int8(48, 64, dtype)
    x = torch.randint(-3, 4, (m, 64)).to(dtype)
    with torch.no_grad():
        compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
        assert mismatch(compiled(x), model(x)) is None
        assert kernelmill.explain(model, x).as_dict()["fallbacks"] == []


class Int4(nn.Module):
    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        numbers = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
        self.register_buffer("weight", packed)
        self.register_buffer("scale", torch.rand(k // 32, n, 2).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.weight, 32, self.scale) + 1


def test_int4_in_the_layout_of_torch_is_left_to_aten() -> None:
    model, x = Int4(64, 64), torch.randn(2, 64).bfloat16()
    with torch.no_grad():
        compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
        assert mismatch(compiled(x), model(x)) is None
        assert len(kernelmill.explain(model, x).as_dict()["fallbacks"]) == 1
