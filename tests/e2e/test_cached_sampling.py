"""Sampling inside of a graph: all but the drawing is in kernels, and the draws are eager's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.inference import cache_compile, readable_cache
from tests.kept_methods import KEPT

TOP, SHARE, TEMPERATURE = 20, 0.9, 0.7
WIDTH, WORDS = 16, 211


def filtered(logits: Tensor) -> Tensor:
    """The most likely words, as many as have so large a share of all; -inf for the others."""
    logits = logits / TEMPERATURE
    least = torch.topk(logits, TOP)[0][..., -1, None]
    logits = logits.masked_fill(logits < least, float("-inf"))
    ascending, order = torch.sort(logits, descending=False)
    removed = ascending.softmax(-1).cumsum(-1) <= 1 - SHARE
    removed[..., -1:] = False
    return logits.masked_fill(removed.scatter(1, order, removed), float("-inf"))


def by_multinomial(logits: Tensor) -> Tensor:
    return torch.multinomial(filtered(logits).softmax(-1), 1)


def by_gumbel(logits: Tensor) -> Tensor:
    kept = filtered(logits)
    return (kept - torch.log(-torch.log(torch.rand_like(kept)))).argmax(-1)


def by_exponential(logits: Tensor) -> Tensor:
    chances = filtered(logits).softmax(-1)
    return (chances / torch.empty_like(chances).exponential_(1.0)).argmax(-1)


WAYS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "multinomial": (by_multinomial, "aten.multinomial.default"),
    "gumbel": (by_gumbel, "aten.rand_like.default"),
    "exponential": (by_exponential, "aten.exponential.default"),
}


class Sampler(nn.Module):
    def __init__(self, way: Callable[[Tensor], Tensor], folder: Path) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.way, self.head = way, nn.Linear(WIDTH, WORDS)
        self.cached = cache_compile(self.draw, cache_dir=str(folder))
        self.eval()

    def draw(self, x: Tensor) -> Tensor:
        return self.way(self.head(x) * 4.0)


def drawn(draw: Callable[[Tensor], Tensor], batches: list[Tensor]) -> list[Tensor]:
    """A word for each row of each batch, from one seed; the last is what would be drawn next."""
    torch.manual_seed(5)
    return [*map(draw, batches), torch.rand(1)]


@KEPT
@pytest.mark.parametrize("way", WAYS)
def test_words_are_eagers_from_the_same_seed(way: str, tmp_path: Path) -> None:
    function, drawing = WAYS[way]
    model = Sampler(function, tmp_path)
    batches = [torch.randn(3, WIDTH) for _ in range(8)]
    with torch.no_grad():
        expected = drawn(model.draw, batches)
        assert len(torch.cat(expected[:-1]).unique()) > 8, "a constant word would prove nothing"
        compiled: Any = torch.compile(model.draw, backend="kernelmill", fullgraph=True)
        again = Sampler(function, tmp_path)
        for draw in (compiled, model.cached, model.cached, again.cached):
            for word, wanted in zip(drawn(draw, batches), expected, strict=True):
                assert torch.equal(word, wanted)
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    assert again.cached.statistics == {"loaded": 1, "traced": 0, "uncached": 0}
    assert model.cached.report()["aten_calls"] == again.cached.report()["aten_calls"] == 1
    assert set(re.findall(r'aten "([^"]*)"', readable_cache(str(tmp_path)))) == {drawing}


def test_a_generator_is_refused_by_dynamo(tmp_path: Path) -> None:
    class Seeded(Sampler):
        def draw(self, x: Tensor, generator: torch.Generator) -> Tensor:
            return torch.multinomial(self.head(x).softmax(-1), 1, generator=generator)

    model = Seeded(by_multinomial, tmp_path)
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.Unsupported):
        model.cached(torch.randn(3, WIDTH), torch.Generator())
