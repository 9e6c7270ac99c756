"""Models with mixtures of experts: routing and experts run as kernels, with eager's tokens."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from kernelmill.compiler.report import GraphReport
from tests import zoo
from tests.compiled import reported
from tests.tolerances import assert_near

pytestmark = pytest.mark.usefixtures("strict")
TOKENS = 12


def assert_nothing_ran_in_aten(reports: list[GraphReport]) -> None:
    assert reports
    assert [entry for report in reports for entry in report.fallbacks] == []


@pytest.mark.parametrize("family", zoo.EXPERTS)
def test_prefill_and_greedy_tokens_are_those_of_eager(family: str, backend: str) -> None:
    model = zoo.experts(family)
    prompt = torch.randint(0, model.config.vocab_size, (1, 9))
    with torch.no_grad():
        expected = model(prompt).logits
    tokens = zoo.generate(model, zoo.decode_step(model), prompt, TOKENS)
    assert len(set(tokens[0].tolist())) > TOKENS // 4, "a constant sequence would prove nothing"
    observed, reports = reported(backend)
    compiled = torch.compile(model, backend=observed, fullgraph=True)
    with torch.no_grad():
        assert_near(compiled(prompt).logits, expected)
    step = torch.compile(zoo.decode_step(model), backend=observed, fullgraph=True)
    assert torch.equal(zoo.generate(model, step, prompt, TOKENS), tokens)
    assert_nothing_ran_in_aten(reports)


def test_prompts_of_any_length(backend: str) -> None:
    model = zoo.experts("qwen3")
    observed, reports = reported(backend)
    with torch.no_grad():
        compiled = torch.compile(model, backend=observed, fullgraph=True, dynamic=True)
        for length in (5, 40, 17):
            prompt = torch.randint(0, model.config.vocab_size, (2, length))
            assert_near(compiled(prompt).logits, model(prompt).logits)
    assert len(reports) == 1
    assert_nothing_ran_in_aten(reports)


class Routed(nn.Module):
    """One block of experts, of which each token has the two that its scores name."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.up = nn.Parameter((torch.randn(8, 96, 64) * 0.2).to(dtype), requires_grad=False)
        self.down = nn.Parameter((torch.randn(8, 64, 48) * 0.2).to(dtype), requires_grad=False)

    def forward(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(torch.softmax(scores, -1), 2)
        experts, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(experts.float(), 8, 0, 7)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        hidden = torch._grouped_mm(x[order // 2], self.up.transpose(1, 2), offs=ends)
        gate, value = hidden.chunk(2, -1)
        hidden = torch.nn.functional.silu(gate) * value
        found = torch._grouped_mm(hidden, self.down.transpose(1, 2), offs=ends)
        found = found * weights.reshape(-1)[order][:, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // 2, found)


def test_weights_in_bfloat16_that_change_between_calls(backend: str) -> None:
    model = Routed(torch.bfloat16)
    reference = copy.deepcopy(model)
    observed, reports = reported(backend)
    with torch.no_grad():
        compiled = torch.compile(model, backend=observed, fullgraph=True)
        for rows in (1, 30, 30):
            x, scores = torch.randn(rows, 64).bfloat16(), torch.randn(rows, 8)
            exact = reference.float()(x.float(), scores)
            reference.bfloat16()
            torch.testing.assert_close(compiled(x, scores).float(), exact, rtol=4e-2, atol=4e-2)
            for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
                mine.mul_(-0.5)
                theirs.mul_(-0.5)
    assert_nothing_ran_in_aten(reports)
