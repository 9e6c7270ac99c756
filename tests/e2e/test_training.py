"""Training: both graphs compiled, gradients, statistics and random numbers as in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import numpy
import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")
WIDTH, LENGTH, VOCABULARY = 16, 6, 31


class Block(nn.Module):
    """A pre-norm transformer block, causal."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, WIDTH // 4)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """Tokens (B, T) to the mean cross entropy of the next token."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(Block(dropout), Block(dropout))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.blocks(self.embedding(tokens[:, :-1])))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


Loss = Callable[[Tensor], Tensor]


def gradients(model: nn.Module) -> list[Tensor]:
    """The gradient of every parameter; each must have one."""
    found = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


# AdamW divides by the size of the gradient: its epsilon here is above what is only rounding.
@pytest.mark.parametrize(
    "optimizer",
    [partial(torch.optim.SGD, lr=1e-2), partial(torch.optim.AdamW, lr=1e-2, eps=1e-3)],
    ids=["SGD", "AdamW"],
)
def test_gradients_over_several_steps(
    optimizer: Callable[..., torch.optim.Optimizer], backend: str
) -> None:
    ours, eager = LanguageModel(), LanguageModel()
    eager.load_state_dict(ours.state_dict())
    compiled = torch.compile(ours, backend=backend, fullgraph=True)
    optimizers = [optimizer(model.parameters()) for model in (ours, eager)]
    for _ in range(4):
        tokens = torch.randint(0, VOCABULARY, (3, LENGTH))
        for each in optimizers:
            each.zero_grad()
        loss, expected = compiled(tokens), eager(tokens)
        loss.backward()
        expected.backward()
        assert_close(loss, expected)
        assert_close(gradients(ours), gradients(eager))
        for each in optimizers:
            each.step()
    # Steps multiply what rounding differs by, so the weights get the looser bound of four of them.
    for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_gradients_of_inputs_and_of_several_results(backend: str) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = torch.softmax(x @ y, dim=-1)
        return z.sum(), z.tanh(), (x * 2).detach()

    inputs = [torch.randn(5, 7), torch.randn(7, 3)]
    weight = torch.randn(5, 3)
    found: list[list[Tensor | None]] = []
    for run in (torch.compile(function, backend=backend), function):
        leaves = [each.clone().requires_grad_() for each in inputs]
        total, tanh, detached = run(*leaves)
        assert not detached.requires_grad
        (total + (tanh * weight).sum()).backward()
        found.append([leaf.grad for leaf in leaves])
    assert_close(*found)


def test_batch_norm_updates_its_statistics(backend: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2))
    reference = copy.deepcopy(model)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for _ in range(3):
        images = torch.randn(2, 3, 9, 9)
        actual, expected = compiled(images), reference(images)
        assert_close(actual, expected)
        actual.square().sum().backward()
        expected.square().sum().backward()
    assert_close(gradients(model), gradients(reference))
    assert_close(dict(model.named_buffers()), dict(reference.named_buffers()))
    assert model[1].num_batches_tracked == 3
    model.eval(), reference.eval()
    assert_close(compiled(images), reference(images))


@pytest.mark.parametrize("kind", ["forward", "step"])
def test_dropout_draws_the_numbers_of_eager(kind: str, backend: str) -> None:
    model = LanguageModel(dropout=0.4).train()
    tokens = torch.randint(0, VOCABULARY, (3, LENGTH))
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    found: list[list[Tensor]] = []
    for run in (compiled, model):
        model.zero_grad()
        torch.manual_seed(11)
        if kind == "forward":
            with torch.no_grad():
                result = [run(tokens), run(tokens)]
            assert result[0] != result[1], "dropout is not active"
        else:
            run(tokens).backward()
            result = [gradient.clone() for gradient in gradients(model)]
        found.append([*result, torch.rand(3)])  # the generator is left where eager leaves it
    assert_close(*found)


def test_in_place_changes_of_a_parameter_are_seen(backend: str) -> None:
    model = nn.Linear(64, 64)
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(4, 64)
    with torch.no_grad():
        assert_close(compiled(x), model(x))
        model.weight.mul_(2.0)
        assert_close(compiled(x), model(x))
        model.bias.add_(1.0)
        assert_close(compiled(x), model(x))
        model.weight.data = torch.randn(64, 64)
        assert_close(compiled(x), model(x))
        model.weight.copy_(torch.eye(64))
        assert_close(compiled(x), x + model.bias)


@pytest.mark.parametrize("sizes", [(64, 64), (3, 5), (128, 1500)])
def test_writes_through_aliases_are_seen(backend: str, sizes: tuple[int, int]) -> None:
    """They leave the version counter and the address as they are."""
    model = nn.Linear(*sizes)
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(4, sizes[0])
    with torch.no_grad():
        assert_close(compiled(x), model(x))
        model.weight.data.add_(0.5)
        assert_close(compiled(x), model(x))
        model.weight.data.copy_(torch.randn(model.weight.shape))
        assert_close(compiled(x), model(x))
        numpy.multiply(model.weight.numpy(), 0.5, out=model.weight.numpy())
        assert_close(compiled(x), model(x))
