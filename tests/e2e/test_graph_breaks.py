"""Models at whose layers Dynamo breaks the graph: eager's results, and what to do is said once."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import graph_break_reasons

import kernelmill
from kernelmill.backend import graph_breaks
from kernelmill.backend.entry import Backend
from kernelmill.torch_internals import forced
from tests.tolerances import assert_close


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x * 2))).softmax(-1)


def quantised(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_breaks, "_said", set[str]())
    graph_break_reasons.clear()


def test_a_quantised_model_says_once_what_to_use(caplog: pytest.LogCaptureFixture) -> None:
    model, x, backend = quantised(Mixed()), torch.randn(3, 8), Backend()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "kernelmill.backend"):
        compiled = torch.compile(model, backend=backend, dynamic=False)
        for rows in (3, 3, 5):
            x = torch.randn(rows, 8)
            assert_close(compiled(x), model(x))
    # What lies between the layers is compiled.
    assert len(backend.captures) >= 3
    said = [record.message for record in caplog.records if "quantize_dynamic" in record.message]
    assert len(said) == 1 and "kernelmill.ops.weight_quant_matmul" in said[0]


def test_it_is_said_of_a_model_of_which_nothing_is_captured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Dynamo leaves a loop that breaks the graph to Python, and calls no backend."""
    layers = (nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))
    model, backend = quantised(nn.Sequential(*layers)), kernelmill.get_backend()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "kernelmill.backend"):
        compiled = torch.compile(model, backend=backend)
        for rows in (3, 3, 5):
            x = torch.randn(rows, 8)
            assert torch.equal(compiled(x), model(x))
    assert not backend.captures
    assert [r.message for r in caplog.records if "quantize_dynamic" in r.message]
    assert len(caplog.records) == 1


def test_explain_says_it_of_a_model_that_has_nothing_to_compile() -> None:
    model = quantised(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)))
    found = kernelmill.explain(model, torch.randn(3, 8))
    assert not found.captures and found.graph_breaks >= 1
    assert "quantize_dynamic" in str(found) and found.as_dict()["advice"] == list(found.advice)


def test_a_recurrent_layer_is_said_too() -> None:
    found = kernelmill.explain(nn.LSTM(4, 4), torch.randn(2, 3, 4))
    assert "allow_rnn" in str(found)


def test_a_model_without_breaks_is_told_nothing() -> None:
    assert kernelmill.explain(Mixed(), torch.randn(3, 8)).advice == ()


class Breaks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        x = x + 1
        torch._dynamo.graph_break()
        return x - 3


def test_breaks_behind_breaks_are_in_the_users_own_function() -> None:
    found = kernelmill.explain(Breaks(), torch.ones(3), measure=False).as_dict()["breaks"]
    assert len(found) == 2 and all(each["place"].endswith(" in forward") for each in found)


def test_a_graph_that_runs_in_torch_whole_is_among_the_fallbacks() -> None:
    with forced(["tensors.handle"]):
        found = kernelmill.explain(torch.nn.ReLU(), torch.ones(3), measure=False).as_dict()
    assert [operator for operator, _, _ in found["fallbacks"]] == ["whole graph"]
    assert found["fallbacks"][0][1] == found["refused"][0]
