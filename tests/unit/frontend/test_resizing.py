"""Linear resizing, taken apart, has eager's numbers: infinities and very large ones, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kernelmill.frontend.decompositions import decomposition_table
from tests.tolerances import mismatch

INF = float("inf")

MODES = {"linear": "upsample_linear1d", "bilinear": "upsample_bilinear2d",
         "trilinear": "upsample_trilinear3d"}  # fmt: skip


def image(*spatial: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers, and a few beside each other that are infinities, or the largest and the
    smallest."""
    x = torch.randn(2, 3, *spatial, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows = x.flatten(2)
    most = torch.finfo(dtype).max
    rows[0, 0, 1:3], rows[0, 1, 1:3] = INF, torch.tensor([most, -most])
    rows[1, 0, -2:], rows[1, 1, -1] = -INF, float("nan")
    return x


def taken_apart(x: Tensor, mode: str, size: Any, factors: Any, align: bool) -> Tensor:
    operator = getattr(torch.ops.aten, MODES[mode]).vec
    return decomposition_table(exported=True)[operator](x, size, align, factors)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(
    ("mode", "have", "size"),
    [
        ("linear", (6,), (11,)),
        ("linear", (6,), (1,)),
        ("bilinear", (5, 6), (7, 13)),
        ("bilinear", (5, 6), (2, 3)),
        ("bilinear", (5, 6), (5, 6)),
        ("bilinear", (5, 6), (5, 9)),
        ("bilinear", (8, 1), (1, 8)),
        ("trilinear", (3, 4, 5), (5, 4, 7)),
    ],
)
def test_to_a_size(mode: str, have: tuple[int, ...], size: tuple[int, ...], align: bool) -> None:
    for dtype in (torch.float32, torch.float64):
        x = image(*have, dtype=dtype)
        made = taken_apart(x, mode, size, None, align)
        assert mismatch(made, F.interpolate(x, size, mode=mode, align_corners=align)) is None


@pytest.mark.parametrize("factor", [2.0, 1.7, 0.6])
def test_by_a_factor(factor: float) -> None:
    x = image(5, 6)
    made = taken_apart(x, "bilinear", None, [factor, factor], False)
    assert mismatch(made, F.interpolate(x, scale_factor=factor, mode="bilinear")) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_resized_in_float32(dtype: torch.dtype) -> None:
    x = torch.randn(1, 2, 5, 6).to(dtype)
    expected = F.interpolate(x, (7, 13), mode="bilinear")
    assert mismatch(taken_apart(x, "bilinear", (7, 13), None, False), expected) is None


def test_channels_stay_last() -> None:
    x = image(5, 6).to(memory_format=torch.channels_last)
    made = taken_apart(x, "bilinear", (7, 13), None, False)
    assert made.stride() == F.interpolate(x, (7, 13), mode="bilinear").stride()


def test_integers_are_torchs() -> None:
    x = torch.randint(0, 255, (1, 2, 5, 6), dtype=torch.uint8)
    made = taken_apart(x, "bilinear", (7, 13), None, False)
    assert made.dtype == torch.uint8
    assert (made.int() - F.interpolate(x, (7, 13), mode="bilinear").int()).abs().max() <= 1
