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
from kernelmill.core.errors import InputError
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


class Branches(nn.Module):
    def look_at_3(self, x: Tensor) -> Tensor:
        x = x + 1 if x.sum() > 1 else x
        x = x + 2 if x.sum() > 2 else x
        return x if x.sum() > 3 else x - 3

    def forward(self, x: Tensor) -> Tensor:
        return self.look_at_3(x * 2)


def test_branches_behind_branches_are_in_the_users_own_function() -> None:
    """Dynamo reports those in functions of its making, torch_dynamo_resume_in_look_at_3_at_90."""
    found = kernelmill.explain(Branches(), torch.ones(3), measure=False).as_dict()["breaks"]
    functions = [each["place"].split(" in ")[1] for each in found]
    assert len(found) >= 3 and set(functions) == {"look_at_3"}


def test_a_graph_that_runs_in_torch_whole_is_among_the_fallbacks() -> None:
    with forced(["tensors.handle"]):
        found = kernelmill.explain(nn.ReLU(), torch.ones(3), measure=False).as_dict()
    assert [operator for operator, _, _ in found["fallbacks"]] == ["whole graph"]
    assert found["fallbacks"][0][1] == found["refused"][0]


def test_explain_of_no_model_says_how_it_is_called() -> None:
    with pytest.raises(InputError, match=r"got str: explain\(model, x\)"):
        kernelmill.explain("m", torch.ones(3))  # type: ignore[arg-type]
