"""Cached methods with higher-order operators: the graphs that these call are kept with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from kernelmill.inference import cache_compile
from tests.e2e.higher_order_models import MODELS, Attended, flat
from tests.kept_methods import KEPT

pytestmark = KEPT


def assert_close(got: Any, wanted: Any) -> None:
    for one, other in zip(flat(got), flat(wanted), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", [name for name in MODELS if "integer" not in name])
def test_bodies_are_loaded_with_the_method(name: str, tmp_path: Path) -> None:
    model, bodies = MODELS[name]
    dynamic = name != "regions"  # which torch does not trace for sizes that vary
    for loaded in (0, 1):
        torch.compiler.reset()
        module = model().eval()
        method = cache_compile(module.forward, cache_dir=tmp_path, dynamic=dynamic)
        with torch.no_grad():
            for rows in (3, 5) if dynamic else (3, 3):
                for sign in (1, -1):
                    x = sign * torch.rand(rows, 8)
                    assert_close(method(x), module(x))
        assert method.statistics == {"loaded": loaded, "traced": 1 - loaded, "uncached": 0}
        assert method.report()["aten_calls"] == (4 if name == "regions" else 1)
        assert method.report()["calls"] > 4  # those of bodies, too
        assert bodies


def test_attention_is_kept(tmp_path: Path) -> None:
    for loaded in (0, 1):
        torch.compiler.reset()
        module = Attended().eval()
        method = cache_compile(module.forward, cache_dir=tmp_path, dynamic=False)
        with torch.no_grad():
            for _ in range(2):
                x = torch.randn(1, 2, 48, 8)
                assert_close(method(x), module(x))
        assert method.statistics == {"loaded": loaded, "traced": 1 - loaded, "uncached": 0}
        assert method.report()["aten_calls"] == 0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: scaled(self.linear(x)), lambda x: x + 1, (x,))


def scaled(x: Tensor) -> Tensor:
    return x * 2


def fivefold(x: Tensor) -> Tensor:
    return x * 5


def test_code_that_only_a_body_runs_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = Scaled().eval(), torch.rand(3, 8)
    with torch.no_grad():
        for function in (scaled, fivefold):
            monkeypatch.setitem(globals(), "scaled", function)
            torch.compiler.reset()
            method = cache_compile(module.forward, cache_dir=tmp_path)
            torch.testing.assert_close(method(x), function(module.linear(x)))


def test_what_torch_alone_can_run_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return flex_attention(x, x, x, score_mod=lambda s, b, h, i, j: s + x[b, h, i].sum()) + 1

    module, x = Attention(), torch.randn(1, 2, 16, 8)
    method = cache_compile(module.forward, cache_dir=tmp_path, dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(method(x), module(x))
    assert method.statistics["uncached"] == 1
    assert not list(tmp_path.rglob("*.kmill"))
    assert "that only torch can run or read" in caplog.text
