"""Random numbers are eager's: the same operators draw them in the same order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelmill.frontend.decompositions import decomposition_table
from tests.unit.frontend.tracing import Traced

CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "permuted": lambda x: F.dropout((x + 1).transpose(0, 2), 0.3),
    "two": lambda x: F.dropout(F.dropout(x, 0.2) * 2, 0.5),
    "features": lambda x: F.dropout1d(x, 0.5) + F.alpha_dropout(x, 0.4),
    "rand": lambda x: torch.rand(2, 3) + torch.randn(3) + torch.rand_like(x[0, :2, :3]),
    "normal": lambda x: torch.empty_like(x).normal_() * torch.empty(4).uniform_(1, 2),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) + torch.randint(5, (4,)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_same_numbers_as_eager(name: str, gradients: bool) -> None:
    function = CASES[name]
    x = torch.randn(3, 5, 4, requires_grad=gradients)
    traced = Traced(function)
    with torch.set_grad_enabled(gradients):
        traced(x)
        torch.manual_seed(8)
        expected = function(x)
        state = torch.get_rng_state()
        torch.manual_seed(8)
        torch.testing.assert_close(traced(x), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), state)


def test_training_with_dropout_has_eagers_gradients() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.randn(2, 5, 8)
    gradients: list[list[Tensor]] = []
    traced = Traced(layer)
    traced(x)
    for run in (layer, traced):
        torch.manual_seed(4)
        loss = run(x).square().sum()
        gradients.append(list(torch.autograd.grad(loss, list(layer.parameters()))))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert "aten.bernoulli.p" in traced.operators()


def test_no_random_operator_is_taken_apart_where_it_draws() -> None:
    seeded, dropout = torch.Tag.nondeterministic_seeded, torch.ops.aten.native_dropout.default
    table = decomposition_table()
    assert [op for op in table if seeded in getattr(op, "tags", ())] == [dropout]
    assert table[dropout](torch.ones(2), 0.5, True) is NotImplemented
    state = torch.get_rng_state()
    torch.testing.assert_close(table[dropout](torch.ones(2), 1.0, True)[0], torch.zeros(2))
    assert torch.equal(torch.get_rng_state(), state)
