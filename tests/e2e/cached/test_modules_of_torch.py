"""Forwards of torch's own modules, which Dynamo calls by a function of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Sequential(nn.Linear(6, 8), nn.ReLU()))


TRACES_ENCODERS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def attention() -> nn.Module:
    return nn.MultiheadAttention(8, 2, batch_first=True)


def padding(rows: int) -> Tensor:
    mask = torch.zeros(rows, 4, dtype=torch.bool)
    mask[:, 3] = True
    return mask


Call = Callable[[Tensor], tuple[tuple[Any, ...], dict[str, Any]]]

CASES: dict[str, tuple[Callable[[], nn.Module], Call]] = {
    "by position": (sequential, lambda x: ((x,), {})),
    "by name": (sequential, lambda x: ((), {"input": x})),
    "with defaults": (encoder, lambda x: ((x,), {})),
    "names in another order": (
        encoder, lambda x: ((), {"src_key_padding_mask": padding(len(x)), "src": x})
    ),
    "one by name": (encoder, lambda x: ((x,), {"src_key_padding_mask": padding(len(x))})),
    "a constant": (attention, lambda x: ((x, x, x), {"need_weights": False})),
    "several results": (attention, lambda x: ((x, x * 2), {"value": x})),
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_forwards_are_kept(tmp_path: Path, case: str) -> None:
    make, call = CASES[case]
    if make is encoder and not TRACES_ENCODERS:
        pytest.skip("torch 2.12 does not trace what its encoder layers run in evaluation")
    for traced in (1, 0):
        torch.manual_seed(5)
        model, plain = make().eval(), make().eval()
        plain.load_state_dict(model.state_dict())
        cached = cache_compile(model.forward, cache_dir=tmp_path)
        model.forward = cached
        for rows in (2, 3, 3):
            args, kwargs = call(torch.randn(rows, 4, 8))
            torch.testing.assert_close(model(*args, **kwargs), plain(*args, **kwargs))
        assert cached.statistics == {"loaded": 1 - traced, "traced": traced, "uncached": 0}


@torch.no_grad()
def test_arguments_and_weights_are_looked_at(tmp_path: Path) -> None:
    model = attention().eval()
    cached = cache_compile(model.forward, cache_dir=tmp_path)
    x = torch.randn(2, 4, 8)
    for needed in (True, False, True):
        expected = model(x, x, x, need_weights=needed)
        torch.testing.assert_close(cached(x, x, x, need_weights=needed), expected)
    assert cached.statistics["traced"] == 2
    model.out_proj.bias.data += 1.0
    torch.testing.assert_close(cached(x, x, x)[0], model(x, x, x)[0])
    with pytest.raises(TypeError, match="query"):
        cached(key=x, value=x)


@torch.no_grad()
def test_a_changed_module_is_another_trace(tmp_path: Path) -> None:
    x = torch.randn(2, 8)
    for act, traced in ((nn.ReLU(), 1), (nn.ReLU(), 0), (nn.Tanh(), 1)):
        model = nn.Sequential(nn.Linear(8, 8), act)
        cached = cache_compile(model.forward, cache_dir=tmp_path)
        torch.testing.assert_close(cached(x), model(x))
        assert cached.statistics["traced"] == traced


class Own(nn.Sequential):
    """Has a forward of its own, and calls torch's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(nn.Linear(8, 8), nn.ReLU())
        self.inner = cache_compile(super().forward, cache_dir=folder)

    def forward(self, input: Tensor) -> Tensor:
        return self.inner(input) + 1.0


@torch.no_grad()
def test_a_forward_of_a_base_class(tmp_path: Path) -> None:
    x = torch.randn(2, 8)
    for traced in (1, 0):
        model = Own(tmp_path)
        torch.testing.assert_close(model(x), model[1](model[0](x)) + 1.0)
        assert model.inner.statistics == {"loaded": 1 - traced, "traced": traced, "uncached": 0}
