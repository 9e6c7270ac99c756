"""Layers of torch.nn that have an operator of their own in inference are compiled all the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.compiled import reported


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layers(activation: str, norm_first: bool, dynamic: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        32, 4, 48, activation=activation, norm_first=norm_first, batch_first=True
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    backend, reports = reported()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for batch, length in ((3, 7), (2, 5)):
            x = torch.randn(batch, length, 32)
            torch.testing.assert_close(compiled(x), model(x))
    assert reports and not any(report.fallbacks for report in reports)


def test_attention_by_itself() -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    backend, reports = reported()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(2, 6, 32)
    with torch.no_grad():
        found, wanted = (f(x, x, x, need_weights=False)[0] for f in (compiled, model))
        torch.testing.assert_close(found, wanted)
    assert reports and not any(report.fallbacks for report in reports)


@pytest.mark.parametrize("of_keys", [False, True])
def test_masks(of_keys: bool) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True).eval()
    compiled = torch.compile(model, backend=reported()[0], fullgraph=True)
    x = torch.randn(2, 6, 32)
    mask = torch.zeros(2, 6, dtype=torch.bool) if of_keys else torch.zeros(6, 6, dtype=torch.bool)
    mask[..., 4:] = True
    masks = {"src_key_padding_mask" if of_keys else "src_mask": mask}
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, **masks), model(x, **masks))
