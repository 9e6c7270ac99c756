"""The patterns that TorchAir fuses by default: what is written apart has the kernels of the fused
operator, and its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.compat.operators import OPERATORS
from tests.compiled import reported

Of = Callable[..., Any]
OPS: dict[str, Any] = dict(OPERATORS)


def norm(x1: Tensor, x2: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    y, _, total = OPS["npu_add_rms_norm"](x1, x2, gamma)
    return y, total


def quantised_smooth(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, total = norm(x1, x2, gamma)
    return *OPS["npu_dynamic_quant"](y, smooth_scales=smooth), total


def quantised_smooth_fused(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, _, x, s, _ = OPS["npu_add_rms_norm_dynamic_quant"](x1, x2, gamma, smooth_scale1=smooth)
    return y, s, x


def quantised_flat(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, total = norm(x1, x2, gamma)
    y, scale = OPS["npu_dynamic_quant"](y.flatten(0, 1))
    return y, scale.view(-1, 1), total


def quantised_flat_fused(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, _, x, s, _ = OPS["npu_add_rms_norm_dynamic_quant"](x1, x2, gamma)
    return y.flatten(0, 1), s.view(-1, 1), x


def cast(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, total = norm(x1, x2, gamma)
    return y.to(torch.float32), y, total


def cast_fused(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    wide, y, _, total = OPS["npu_add_rms_norm_cast"](x1, x2, gamma)
    return wide, y, total


def cast_view(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, total = norm(x1, x2, gamma)
    return y.view(-1, y.size(-1)).to(torch.float32), y, total


def cast_view_fused(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    wide, y, total = cast_fused(x1, x2, gamma, smooth)
    return wide.view(-1, y.size(-1)), y, total


def quantised(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, total = norm(x1, x2, gamma)
    return OPS["npu_quantize"](y, smooth, None, torch.qint8, -1, True), total


def quantised_fused(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    y, _, total = OPS["npu_add_rms_norm_quant"](x1, x2, gamma, smooth, None)
    return y, total


def turned(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    return torch.matmul(x1, x2.transpose(1, 2)).transpose(0, 1).contiguous()


def turned_fused(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    return OPS["npu_transpose_batchmatmul"](x1, x2.transpose(1, 2), perm_y=[1, 0, 2])


def turned_twice(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    x1 = x1.transpose(0, 1)
    return torch.matmul(x1.transpose(0, 1), x2.transpose(1, 2)).transpose(0, 1).contiguous()


def turned_twice_fused(x1: Tensor, x2: Tensor, gamma: Tensor, smooth: Tensor) -> Any:
    x1 = x1.transpose(0, 1)
    return OPS["npu_transpose_batchmatmul"](x1, x2.transpose(1, 2), perm_x1=[1, 0, 2])


@pytest.mark.parametrize(
    ("apart", "fused", "more"),
    [
        (quantised_smooth, quantised_smooth_fused, 0), (quantised_flat, quantised_flat_fused, 1),
        (cast, cast_fused, 0), (cast_view, cast_view_fused, 1), (quantised, quantised_fused, 0),
        (turned, turned_fused, 0), (turned_twice, turned_twice_fused, 0),
    ],
)  # fmt: skip
def test_a_pattern_has_the_kernels_of_the_fused_operator(apart: Of, fused: Of, more: int) -> None:
    torch.manual_seed(0)
    args = [torch.randn(2, 3, 32).half(), torch.randn(2, 3, 32).half()]
    args += [torch.rand(32).half() + 0.5, torch.rand(32).half() + 0.5]
    found: list[tuple[Any, list[str]]] = []
    for model in (apart, fused):
        backend, reports = reported()
        with torch.no_grad():
            results = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*args)
        assert [entry for report in reports for entry in report.fallbacks] == []
        kinds = sorted(kernel.type for report in reports for kernel in report.kernels)
        found.append((results, kinds))
    (one, kernels), (other, theirs) = found
    assert len(kernels) <= len(theirs) + more, "a view in between costs one"
    torch.testing.assert_close(one, other, rtol=0, atol=0)
