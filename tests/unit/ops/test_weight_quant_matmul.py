"""weight_quant_matmul: its formula, eager, exported and compiled; what it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.core.errors import InputError
from kernelmill.ops import weight_quant_matmul
from tests.tolerances import mismatch

GROUP = 16
FORMS = ["tensor", "channel", "row", "group"]


class Linear(nn.Module):
    """A weight of whole numbers with scales that are powers of two: every product is exact."""

    weight: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, k: int, n: int, form: str, int4: bool, dtype: torch.dtype) -> None:
        super().__init__()
        shape = {"tensor": (1,), "channel": (n,), "row": (1, n), "group": (k // GROUP, n)}[form]
        self.numbers = torch.randint(0, 16, (k, n)) if int4 else torch.randint(-128, 128, (k, n))
        self.register_buffer("weight", self.numbers.to(torch.int8))
        if int4:
            packed = self.numbers[0::2] + 16 * self.numbers[1::2]
            self.register_buffer("weight", packed.to(torch.uint8))
        self.register_buffer("scale", 2.0 ** torch.randint(-3, 1, shape))
        self.register_buffer("offset", torch.randint(-8, 8, shape).to(torch.float32))
        self.bias = nn.Parameter(torch.randint(-9, 9, (n,)).to(dtype))
        self.group = GROUP if form == "group" else 0

    def forward(self, x: Tensor) -> Tensor:
        return weight_quant_matmul(
            x, self.weight, self.scale, antiquant_offset=self.offset, bias=self.bias,
            antiquant_group_size=self.group,
        )  # fmt: skip

    def exact(self, x: Tensor) -> Tensor:
        """The result in float64."""
        scale, offset = (
            v.repeat_interleave(self.group, 0) if self.group else v
            for v in (self.scale.double(), self.offset.double())
        )
        return x.double() @ ((self.numbers + offset) * scale) + self.bias.double()


def whole(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randint(-3, 4, shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("int4", [False, True], ids=["int8", "int4"])
@pytest.mark.parametrize("form", FORMS)
def test_eager_and_compiled_are_exact(form: str, int4: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = Linear(32, 20, form, int4, dtype)
    compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
    for shape in ((1, 32), (2, 3, 32), (32,)):
        x = whole(dtype, *shape)
        wanted = model.exact(x).to(dtype)
        with torch.no_grad():
            assert mismatch(model(x), wanted) is None
            assert mismatch(compiled(x), wanted) is None


def test_compiled_it_is_one_kernel() -> None:
    model = Linear(64, 48, "group", True, torch.float32)
    with torch.no_grad():
        found = kernelmill.explain(model, whole(torch.float32, 1, 64)).as_dict()
    launches = {kernel["type"]: kernel["launches"] for kernel in found["kernels"]}
    assert found["fallbacks"] == []
    assert launches == {"Copy": 2, "MatMulAdd": 1}  # the bytes and the scales packed, and then


def test_it_is_exported_as_one_node() -> None:
    model = Linear(32, 20, "channel", False, torch.float32)
    program = torch.export.export(model, (whole(torch.float32, 4, 32),))
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert names == ["kernelmill.weight_quant_matmul.default"]


X, W, S = torch.ones(2, 32), torch.ones(32, 8, dtype=torch.int8), torch.ones(8)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((X.int(), W, S), {}, "x must be float with 1 dim or more, not torch.int32 with 2 dims"),
        ((X, W.int(), S), {}, "weight must be int8 or uint8 with 2 dims, not torch.int32"),
        ((X, W[:8], S), {}, "x has k = 32, the weight 8"),
        ((X, W, S.int()), {}, "antiquant_scale must be float, not torch.int32"),
        ((X, W, S[:3]), {}, "antiquant_scale must be (1,), (8,) or (1, 8), not (3,)"),
        ((X, W, S), {"antiquant_group_size": 16}, "antiquant_scale must be (2, 8), not (8,)"),
        ((X, W, S), {"antiquant_group_size": 5}, "k = 32 is not cut into groups of 5"),
        ((X, W, S), {"antiquant_group_size": -1}, "antiquant_group_size is -1"),
        ((X, W, S), {"bias": S.double()}, "bias must be torch.float32 (8,), not torch.float64"),
        ((X, W, S), {"antiquant_offset": S[:2]}, "antiquant_offset must be (1,), (8,)"),
    ],
)
def test_what_it_refuses(args: tuple[Tensor, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        weight_quant_matmul(*args, **options)
