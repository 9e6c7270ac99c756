"""dequant_swiglu_quant against its formula element by element; what it refuses."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

import kernelmill
from kernelmill.ops import dequant_swiglu_quant

OPERATOR = torch.ops.kernelmill.dequant_swiglu_quant.default
T, H = 6, 10


def row(values: torch.Tensor | None, number: int) -> torch.Tensor | None:
    """Row `number` of a scale that has one row for each, or its only row."""
    if values is None:
        return None
    flat = values.double().reshape(-1, values.shape[-1])
    return flat[number if len(flat) > 1 else 0]


def by_hand(
    x: torch.Tensor, token: int, group: int, o: dict[str, Any]
) -> tuple[list[float], float]:
    """One row in float64, before rounding: (y, scale)."""
    wide = x[token].double()
    scale, bias = row(o.get("weight_scale"), group), row(o.get("bias"), 0)
    if bias is not None and o["bias"].dtype == torch.int32:
        wide, bias = wide + bias, None
    wide = wide if scale is None else wide * scale
    if o.get("activation_scale") is not None:
        wide = wide * float(o["activation_scale"].flatten()[token])
    wide = wide if bias is None else wide + bias
    result: list[float] = []
    for i in range(len(wide) // 2):
        if o.get("swiglu_mode", 0) == 1:
            gate = min(float(wide[2 * i]), 7.0)
            other = min(max(float(wide[2 * i + 1]), -7.0), 7.0) + 1.0
            result.append(gate / (1 + math.exp(-1.702 * gate)) * other)
            continue
        gate, other = float(wide[H + i]), float(wide[i])
        if o.get("activate_left"):
            gate, other = other, gate
        result.append(gate / (1 + math.exp(-gate)) * other)
    smooth, offset = row(o.get("quant_scale"), group), row(o.get("quant_offset"), 0)
    one = torch.ones(H).double()
    smooth = one if smooth is None else one * smooth
    offset = one * 0 if offset is None else one * offset
    if o.get("quant_mode", 0) == 0:
        pairs = zip(result, smooth.tolist(), offset.tolist(), strict=True)
        return [y / s + b for y, s, b in pairs], 0.0
    result = [y * s for y, s in zip(result, smooth.tolist(), strict=True)]
    largest = max(map(abs, result))
    return [y * 127 / largest if largest else 0.0 for y in result], largest / 127


def agrees(x: torch.Tensor, groups: list[int], options: dict[str, Any]) -> None:
    """Compiled and eager give one result, and it is within half a step of the row by hand."""
    y, scale = dequant_swiglu_quant(x, **options)
    assert y.dtype == torch.int8 and scale.dtype == torch.float32
    for token, group in enumerate(groups):
        wanted, factor = by_hand(x, token, group, options)
        near = torch.tensor(wanted).clamp(-128, 127)
        assert float((y[token].double() - near).abs().max()) <= 0.5 + 1e-3
        assert float(scale[token]) == pytest.approx(factor, rel=1e-5)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return dequant_swiglu_quant(x, **options)

    compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
    y_compiled, scale_compiled = compiled(x)
    # exp may differ in its last bit, which moves a result that lies between two numbers.
    assert int((y_compiled.int() - y.int()).abs().max()) <= 1
    torch.testing.assert_close(scale_compiled, scale, rtol=1e-5, atol=0)


def inputs(kind: torch.dtype) -> torch.Tensor:
    torch.manual_seed(3)
    if kind == torch.int32:
        return torch.randint(-999, 999, (T, 2 * H), dtype=torch.int32)
    return (torch.randn(T, 2 * H) * 3).to(kind)


FORMS: list[dict[str, Any]] = [
    {"quant_mode": 1},
    {"quant_mode": 1, "activate_left": True, "quant_scale": torch.rand(1, H) + 0.5},
    {"quant_scale": torch.rand(H) + 0.1, "quant_offset": torch.randn(H)},
    {"quant_scale": torch.tensor([0.25]), "activation_scale": torch.rand(T, 1)},
    {"swiglu_mode": 1, "quant_mode": 1},
    {"weight_scale": torch.rand(T, 2 * H), "activate_left": True},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form))
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_floats(kind: torch.dtype, form: dict[str, Any]) -> None:
    agrees(inputs(kind), list(range(T)), form)


@pytest.mark.parametrize("bias", [None, torch.int32, torch.bfloat16], ids=str)
def test_sums_of_an_int8_product(bias: torch.dtype | None) -> None:
    options: dict[str, Any] = {
        "weight_scale": torch.rand(2 * H) * 0.01,
        "activation_scale": torch.rand(T),
        "quant_mode": 1,
    }
    if bias is not None:
        options["bias"] = (torch.randn(2 * H) * 5).to(bias)
    agrees(inputs(torch.int32), [0] * T, options)


def test_groups_have_scales_of_their_own() -> None:
    options = {
        "weight_scale": torch.rand(4, 2 * H) * 0.01, "quant_scale": torch.rand(4, H) + 0.5,
        "group_index": torch.tensor([2, 0, 3, 0]), "quant_mode": 1,
    }  # fmt: skip
    x = inputs(torch.int32)
    agrees(x, [0, 0, 2, 2, 2], options)
    y, scale = dequant_swiglu_quant(x, **options)
    assert not y[5].any() and scale[5] == 0


def test_a_row_of_zeros_stays_zero() -> None:
    y, scale = dequant_swiglu_quant(torch.zeros(2, 8), quant_mode=1)
    assert not y.any() and not scale.any()


def test_leading_dims_are_tokens() -> None:
    x = torch.randn(2, 3, 8)
    y, scale = dequant_swiglu_quant(x, quant_mode=1)
    flat, flat_scale = dequant_swiglu_quant(x.reshape(6, 8), quant_mode=1)
    assert torch.equal(y, flat.reshape(2, 3, 4)) and torch.equal(scale, flat_scale.reshape(2, 3))


def test_it_is_a_whole_custom_operator() -> None:
    options = {"quant_scale": torch.rand(1, H), "quant_mode": 1, "activate_left": True}
    checks = torch.library.opcheck(OPERATOR, (inputs(torch.float32),), options)
    assert set(checks.values()) == {"SUCCESS"}


ODD, EVEN = torch.randn(2, 7), torch.randn(2, 8)
BAD: list[tuple[torch.Tensor, dict[str, Any], str]] = [
    (ODD, {}, "the last one even: (2, 7)"),
    (EVEN.double(), {}, "x is torch.float64"),
    (EVEN.int(), {}, "needs a weight_scale"),
    (EVEN, {"quant_mode": 2}, "quant_mode 2"),
    (EVEN, {"swiglu_mode": 2}, "swiglu_mode 2"),
    (EVEN, {"quant_offset": torch.rand(4)}, "quant_offset belongs"),
    (EVEN, {"quant_offset": torch.rand(4), "quant_mode": 1}, "quant_offset belongs"),
    (EVEN, {"group_index": torch.tensor([2])}, "group_index needs quant_mode 1"),
    (EVEN, {"group_index": torch.tensor([2.0]), "quant_mode": 1}, "must be int64"),
    (
        EVEN,
        {"group_index": torch.tensor([2]), "quant_mode": 1, "quant_scale": torch.rand(2, 4)},
        "quant_scale must have a row for each of 1 groups",
    ),
]


@pytest.mark.parametrize(("x", "options", "message"), BAD, ids=[bad[2] for bad in BAD])
def test_it_says_what_does_not_fit(x: torch.Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(kernelmill.InputError, match=re.escape(message)):
        dequant_swiglu_quant(x, **options)
