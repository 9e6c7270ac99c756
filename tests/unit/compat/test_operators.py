"""Operators of torch_npu against definitions in float64, eager and compiled without a fallback."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.compat.operators import OF_LENGTHS, OPERATORS
from tests.compiled import reported
from tests.tolerances import tolerance
from tests.unit.compat import operator_definitions as by
from tests.unit.compat.attention_cases import CASES
from tests.unit.compat.operator_cases import (
    BRAIN,
    BYTE,
    DTYPES,
    HALF,
    case,
    drawn,
    whole,
)  # fmt: skip


def called(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    table, _, last = name.rpartition(".")
    found = (OF_LENGTHS if table else OPERATORS)[last](*args, **options)
    return list(found) if isinstance(found, (list, tuple)) else [found]


def assert_is(found: Any, exact: Tensor | None) -> None:
    if exact is None:
        return
    assert isinstance(found, Tensor) and found.shape == exact.shape, (found, exact.shape)
    if found.dtype in (BYTE, torch.uint8):
        clamped = exact.double().clamp(-128 if found.dtype == BYTE else 0,
                                       127 if found.dtype == BYTE else 255)  # fmt: skip
        assert float((found.double() - clamped).abs().max()) <= 0.5 + 1e-3
        return
    rtol, atol = tolerance(found.dtype)
    torch.testing.assert_close(found.double(), exact.double(), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", CASES.keys())
def test_an_operator_gives_what_its_definition_says(name: str) -> None:
    torch.manual_seed(0)
    operator, args, options, expected = CASES[name]()
    kept = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
    for found, exact in zip(called(operator, args, options), expected(), strict=True):
        assert_is(found, exact)
    backend, reports = reported()
    tensors = {n: value for n, value in options.items() if isinstance(value, Tensor)}
    fixed = {n: value for n, value in options.items() if n not in tensors}

    def model(given: tuple[Any, ...], tensors: dict[str, Tensor]) -> list[Any]:
        return called(operator, given, {**fixed, **tensors})

    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
        results = compiled(tuple(kept), tensors)
    for found, exact in zip(results, expected(), strict=True):
        assert_is(found, exact)
    assert reports and [entry for report in reports for entry in report.fallbacks] == []


# ---- norms ----------------------------------------------------------------------------------


def _norms() -> None:
    for dtype in DTYPES:

        def rms(dtype: torch.dtype = dtype) -> Any:
            x, gamma = drawn(3, 4, 32, dtype=dtype), drawn(32)
            return "npu_rms_norm", (x, gamma), {"epsilon": 1e-5}, lambda: by.norm(x, gamma, 1e-5)

        def add(dtype: torch.dtype = dtype) -> Any:
            x1, x2, gamma = drawn(3, 4, 8, dtype=dtype), drawn(3, 4, 8, dtype=dtype), drawn(4, 8)
            gamma, total = gamma.to(dtype), x1 + x2
            return (
                "npu_add_rms_norm", (x1, x2, gamma), {},
                lambda: [*by.norm(total, gamma, 1e-6), total],
            )  # fmt: skip

        for function in (rms, add):
            CASES[f"{function.__name__}_{str(dtype)[6:]}"] = function


_norms()


@case
def add_norm_cast() -> Any:
    x1, x2, gamma = drawn(4, 16, dtype=HALF), drawn(4, 16, dtype=HALF), drawn(16, dtype=HALF)
    total = x1 + x2

    def expected() -> list[Tensor | None]:
        y, inverse = by.norm(total, gamma, 1e-6)
        return [None, y, inverse, total]

    return "npu_add_rms_norm_cast", (x1, x2, gamma), {}, expected


@case
def add_norm_quant() -> Any:
    x1, x2, gamma, beta = drawn(4, 16), drawn(4, 16), drawn(16), drawn(16)
    first, second = torch.rand(16) / 30 + 0.01, torch.rand(16) / 30 + 0.01
    zero = torch.randint(-3, 4, (16,), dtype=torch.int32)

    def expected() -> list[Tensor | None]:
        y, _ = by.norm(x1 + x2, gamma, 1e-6, beta)
        return [y / first.double() + zero, y / second.double(), x1 + x2]

    options = {"beta": beta, "scales2": second, "axis": -1}
    return "npu_add_rms_norm_quant", (x1, x2, gamma, first, zero), options, expected


@case
def add_norm_dynamic_quant() -> Any:
    x1, x2, gamma, smooth = drawn(2, 3, 16), drawn(2, 3, 16), drawn(16), torch.rand(16)

    def expected() -> list[Tensor | None]:
        y, _ = by.norm(x1 + x2, gamma, 1e-6)
        y1, scale1 = by.by_row(y, [smooth])
        y2, scale2 = by.by_row(y, [None])
        return [y1, y2, x1 + x2, scale1, scale2]

    options = {"smooth_scale1": smooth, "output_mask": [True, True]}
    return "npu_add_rms_norm_dynamic_quant", (x1, x2, gamma), options, expected


@case
def dynamic_quant() -> Any:
    x = drawn(4, 3, 32, dtype=BRAIN)
    x[1, 1] = 0
    return "npu_dynamic_quant", (x,), {}, lambda: by.by_row(x, [None])


@case
def dynamic_quant_of_groups() -> Any:
    x, smooth = drawn(7, 16, dtype=HALF), torch.rand(3, 16).half()
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)
    rows = [smooth[0], smooth[0], *[smooth[2]] * 5]
    options = {"smooth_scales": smooth, "group_index": ends}
    return "npu_dynamic_quant", (x,), options, lambda: by.by_row(x, rows)


def _shorts(values: Tensor) -> Tensor:
    """Eight numbers of four bits in one int32, the first in the lowest."""
    rows = values.clamp(-8, 7).round().long().reshape(-1, 8).tolist()
    packed = [sum((v & 15) << 4 * i for i, v in enumerate(row)) for row in rows]
    signed = [p - 2**32 if p >= 2**31 else p for p in packed]
    return torch.tensor(signed).reshape(*values.shape[:-1], -1)


@case
def dynamic_quant_in_four_bits() -> Any:
    x = drawn(3, 2, 16, dtype=HALF)
    scale = x.double().abs().amax(-1, keepdim=True) / 7
    options = {"dst_type": torch.quint4x2}
    return "npu_dynamic_quant", (x,), options, lambda: [_shorts(x / scale), scale.squeeze(-1)]


@case
def quantize_in_four_bits() -> Any:
    x, scales, zero = drawn(2, 3, 16), torch.rand(16) * 3, torch.rand(16)
    options = {"axis": -1, "div_mode": False}
    exact = x.double() * scales + zero
    return "npu_quantize", (x, scales, zero, torch.quint4x2), options, lambda: [_shorts(exact)]


@case
def quantize_by_channel() -> Any:
    x, scales = drawn(3, 5, 8), torch.rand(5) / 50 + 0.005
    zero = torch.randint(-5, 6, (5,), dtype=torch.int32)
    exact = x.double() / scales.double()[:, None] + zero[:, None]
    return "npu_quantize", (x, scales, zero, torch.qint8), {"axis": 1}, lambda: [exact]


@case
def quantize_unsigned() -> Any:
    x, scales, zero = drawn(3, 8), torch.tensor([0.02]), torch.tensor([100], dtype=torch.uint8)
    exact = x.double() / scales.double() + 100
    return "npu_quantize", (x, scales, zero, torch.quint8), {}, lambda: [exact]


@case
def quantize_by_product() -> Any:
    x, scales = drawn(2, 6, 8, dtype=HALF), (torch.rand(6) * 40).half()
    exact = x.double() * scales.double()[:, None]
    options = {"axis": -2, "div_mode": False}
    return "npu_quantize", (x, scales, None, torch.qint8), options, lambda: [exact]


def _rotary() -> None:
    for mode in ("half", "interleave"):
        for dtype in DTYPES:

            def rotary(mode: str = mode, dtype: torch.dtype = dtype) -> Any:
                x = drawn(2, 3, 4, 16, dtype=dtype)
                r1, r2 = torch.rand(1, 3, 1, 16).to(dtype), torch.rand(1, 3, 1, 16).to(dtype)
                exact = by.rotated(x, r1, r2, mode == "interleave")
                return "npu_rotary_mul", (x, r1, r2), {"rotary_mode": mode}, lambda: [exact]

            CASES[f"rotary_{mode}_{str(dtype)[6:]}"] = rotary


_rotary()


@case
def rotary_by_matrix() -> Any:
    x, r1, r2 = drawn(2, 3, 4, 8), torch.rand(2, 3, 1, 8), torch.rand(2, 3, 1, 8)
    matrix = torch.zeros(8, 8)
    for i in range(4):
        matrix[i + 4, i], matrix[i, i + 4] = -1, 1
    exact = by.rotated(x, r1, r2, interleave=False)
    return "npu_rotary_mul", (x, r1, r2), {"rotate": matrix}, lambda: [exact]


@case
def swiglu() -> Any:
    x = drawn(3, 8, 5, dtype=HALF)
    a, b = x.double()[:, :4], x.double()[:, 4:]
    return "npu_swiglu", (x,), {"dim": 1}, lambda: [a / (1 + torch.exp(-a)) * b]


@case
def scatter() -> Any:
    x, updates = drawn(4, 5, 6), drawn(3, 6)
    indices = torch.tensor([[0, 1], [3, 4], [2, 0]], dtype=torch.int32)
    exact = x.double().clone()
    for (i, j), row in zip(indices.tolist(), updates.double(), strict=True):
        exact[i, j] = row
    return "npu_scatter_nd_update_", (x, indices, updates), {}, lambda: [exact]


@case
def scatter_of_a_copy() -> Any:
    x, updates = drawn(6, 4, dtype=BRAIN), drawn(2, 1, 4, dtype=BRAIN)
    exact = x.double().clone()
    exact[5], exact[0] = updates[0, 0].double(), updates[1, 0].double()
    indices = torch.tensor([[[5]], [[0]]])
    return "npu_scatter_nd_update", (x, indices, updates), {}, lambda: [exact]


# ---- experts --------------------------------------------------------------------------------


def _silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def _grouped() -> None:
    for kind, groups in {"ends": [2, 2, 6], "counts": [2, 0, 4], "pairs": [[2, 2], [0, 4]]}.items():

        def rows(kind: str = kind, groups: Any = groups) -> Any:
            x, weight, bias = drawn(7, 16), drawn(3, 16, 8), drawn(3, 8)
            order = [2, 2, 0, 0, 0, 0] if kind == "pairs" else [0, 0, 2, 2, 2, 2]
            exact = torch.zeros(7, 8, dtype=torch.float64)
            for i, group in enumerate(order):
                exact[i] = _silu(x[i].double() @ weight[group].double() + bias[group].double())
            options = {
                "bias": [bias], "group_list": torch.tensor(groups), "split_item": 3,
                "group_type": 0, "act_type": 5,
                "group_list_type": ["ends", "counts", "pairs"].index(kind),
            }  # fmt: skip
            return "npu_grouped_matmul", ([x], [weight]), options, lambda: [exact]

        CASES[f"grouped_by_{kind}"] = rows


_grouped()


@case
def grouped_pairs_of_tensors() -> Any:
    x, weight = [drawn(3, 16), drawn(2, 5, 8)], [drawn(16, 4), drawn(8, 6)]
    bias = [drawn(4), drawn(6)]
    exact = [a.double() @ b.double() + c.double() for a, b, c in zip(x, weight, bias, strict=True)]
    return "npu_grouped_matmul", (x, weight), {"bias": bias, "group_type": -1}, lambda: exact


@case
def grouped_by_numbers() -> Any:
    x, weight = drawn(6, 16, dtype=HALF), [drawn(16, 4, dtype=HALF) for _ in range(3)]
    ends, exact = [0, 1, 4, 6], list[Tensor]()
    for i, one in enumerate(weight):
        exact.append(x[ends[i] : ends[i + 1]].double() @ one.double())
    return "npu_grouped_matmul", ([x], weight), {"group_list": ends[1:]}, lambda: exact


@case
def grouped_by_depth() -> Any:
    x, weight = drawn(5, 12), drawn(12, 6)
    cuts = [(0, 4), (4, 4), (4, 12)]
    exact = torch.stack([x.double()[:, a:b] @ weight.double()[a:b] for a, b in cuts])
    options = {"group_list": torch.tensor([4, 4, 12]), "split_item": 3, "group_type": 2}
    return "npu_grouped_matmul", ([x], [weight]), options, lambda: [exact]


@case
def grouped_bytes() -> Any:
    x, weight = whole(7, 16), whole(3, 16, 8)
    scale, token, bias = torch.rand(3, 8) / 9, torch.rand(7), torch.randint(-9, 9, (3, 8)).int()
    exact = torch.zeros(7, 8, dtype=torch.float64)
    for i, group in enumerate([0, 1, 1, 1, 2, 2, 2]):
        sums = x[i].double() @ weight[group].double() + bias[group].double()
        exact[i] = sums * scale[group].double() * token[i].double()
    options = {
        "bias": [bias], "scale": [scale], "per_token_scale": [token], "split_item": 2,
        "group_list": torch.tensor([1, 4, 7]), "group_type": 0, "output_dtype": BRAIN,
    }  # fmt: skip
    return "npu_grouped_matmul", ([x], [weight]), options, lambda: [exact]


@case
def grouped_weights_of_bytes() -> Any:
    x, weight = drawn(6, 16), whole(2, 16, 8)
    scale, shift = torch.rand(2, 4, 8) / 9, drawn(2, 4, 8)
    wide = weight.double() + shift.double().repeat_interleave(4, 1)
    wide = wide * scale.double().repeat_interleave(4, 1)
    exact = torch.cat((x[:2].double() @ wide[0], x[2:].double() @ wide[1]))
    options = {
        "antiquant_scale": [scale], "antiquant_offset": [shift], "split_item": 3,
        "group_list": torch.tensor([2, 6]), "group_type": 0,
    }  # fmt: skip
    return "npu_grouped_matmul", ([x], [weight]), options, lambda: [exact]


@case
def transposed_batches() -> Any:
    x, weight = drawn(5, 3, 16, dtype=HALF), drawn(3, 16, 8, dtype=HALF)
    exact = torch.stack([x.double()[:, b] @ weight.double()[b] for b in range(3)], 1)
    options = {"perm_x1": [1, 0, 2], "perm_x2": [0, 1, 2], "perm_y": [1, 0, 2]}
    return "npu_transpose_batchmatmul", (x, weight), options, lambda: [exact]


@case
def transposed_batches_that_are_split() -> Any:
    x, weight = drawn(4, 5, 16), drawn(4, 16, 6)
    exact = torch.stack([x.double()[b] @ weight.double()[b] for b in range(4)], 1).reshape(5, 24)
    exact = exact.reshape(5, 2, 12).transpose(0, 1)
    return "npu_transpose_batchmatmul", (x, weight), {"batch_split_factor": 2}, lambda: [exact]


def _gates() -> None:
    for sigmoid in (False, True):
        for mode in (0, 1):

            def gate(sigmoid: bool = sigmoid, mode: int = mode) -> Any:
                x, bias = drawn(6, 32), drawn(32) / 9
                options = {
                    "bias": bias, "k_group": 2, "group_count": 4, "group_select_mode": mode,
                    "norm_type": int(sigmoid), "out_flag": True, "routed_scaling_factor": 2.5,
                }  # fmt: skip
                exact = by.gating(x, 5, bias, 2, 4, mode, sigmoid, 2.5)
                return "npu_moe_gating_top_k", (x, 5), options, lambda: exact

            CASES[f"gate_{'sigmoid' if sigmoid else 'softmax'}_{mode}"] = gate


_gates()


@case
def gate_without_groups() -> Any:
    x = drawn(6, 16)
    x[:, 3] = x[:, 7] = 5.0  # the lower expert comes first
    exact = by.gating(x, 4, None, 1, 1, 0, False, 1.0)[:2]
    return "npu_moe_gating_top_k", (x, 4), {}, lambda: [*exact, None]
