"""Attention: one operator in inference; in training spelled out, with eager's gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.unit.frontend.tracing import Traced, trace

FLOAT_MASK = torch.randn(2, 1, 5, 7)
ROW_MASKED = torch.ones(2, 1, 5, 7, dtype=torch.bool)
ROW_MASKED[1, :, 3] = False

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "float mask": {"attn_mask": FLOAT_MASK},
    "plane mask": {"attn_mask": FLOAT_MASK[0, 0]},
    "row fully masked": {"attn_mask": ROW_MASKED},
}


def inputs(groups: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 4, 5, 8), torch.randn(2, groups, 7, 8), torch.randn(2, groups, 7, 8)


@pytest.mark.parametrize("name", CASES)
def test_inference_is_one_operator(name: str) -> None:
    options = CASES[name]
    traced = trace(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), *inputs())
    assert "attention" in traced.operators()
    assert not traced.fallbacks()


def test_a_float32_mask_of_a_half_query_is_not_rounded() -> None:
    q, k, v = (x.to(torch.bfloat16) for x in inputs())
    traced = Traced(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m))
    with torch.no_grad():
        found = traced(q, k, v, FLOAT_MASK - 200)
        expected = F.scaled_dot_product_attention(q, k, v, FLOAT_MASK - 200)
    torch.testing.assert_close(found, expected, rtol=1.6e-2, atol=1.6e-2)
    assert "attention" in traced.operators()


def test_grouped_queries_stay_grouped() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    graph = trace(function, *inputs(groups=2)).graph
    (node,) = [node for node in graph.nodes if node.op == "attention"]
    assert node.operands[1].shape == (2, 2, 7, 8)


@pytest.mark.parametrize("name", CASES)
def test_training_has_eagers_gradients(name: str) -> None:
    options = CASES[name]

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **options)

    args = [x.requires_grad_() for x in inputs()]
    traced = Traced(function)
    weights = torch.randn(2, 4, 5, 8)
    want = torch.autograd.grad((function(*args) * weights).sum(), args)
    have = torch.autograd.grad((traced(*args) * weights).sum(), args)
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)
    assert len(traced.graphs) == 2
    assert not traced.fallbacks()
