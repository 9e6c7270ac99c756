"""Cached methods and caches of layers that look back a limited number of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

import transformers

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT

WINDOW = 6
CONFIG = transformers.MistralConfig(
    vocab_size=211, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, sliding_window=WINDOW, bos_token_id=None,
    eos_token_id=None, pad_token_id=0, max_position_embeddings=64,
)  # fmt: skip


class Decoder(transformers.MistralForCausalLM):
    def __init__(self, folder: Path) -> None:
        super().__init__(CONFIG)
        self.step = cache_compile(self.one_token, dynamic=True, cache_dir=str(folder))
        self.prompt = cache_compile(self.many_tokens, dynamic=True, cache_dir=str(folder))

    def one_token(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        return self.logits(ids, mask, positions, cache)

    def many_tokens(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        return self.logits(ids, mask, positions, cache)

    def logits(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        return self(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
            use_cache=True,
        ).logits  # fmt: skip


def generate(model: Decoder, length: int, count: int) -> None:
    """A prompt and single tokens, each compared with eager: logits, keys and counts of tokens."""
    caches = [transformers.DynamicCache(config=CONFIG) for _ in range(2)]
    generator = torch.Generator().manual_seed(length)
    done = 0
    for size in (length, *[1] * count):
        ids = torch.randint(1, 211, (1, size), generator=generator)
        mask = torch.ones(1, done + size, dtype=torch.int64)
        positions = torch.arange(done, done + size)[None]
        method = model.prompt if done == 0 else model.step
        with torch.no_grad():
            found = method(ids, mask, positions, caches[0])
            expected = model.logits(ids, mask, positions, caches[1])
        torch.testing.assert_close(found, expected)
        done += size
        for layer, other in zip(caches[0].layers, caches[1].layers, strict=True):
            assert layer.cumulative_length == other.cumulative_length == done
            torch.testing.assert_close(layer.keys, other.keys)
            assert layer.keys.stride() == other.keys.stride()


def test_windows_that_fill_and_then_slide(tmp_path: Path) -> None:
    """How far a layer looks back is a size of a trace, which may happen to be another one of them:
    the program holds for calls where they are equal, and for no others."""
    torch.manual_seed(2)
    model = Decoder(tmp_path).eval()
    generate(model, 4, 5)
    assert model.prompt.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    for length, count in ((3, 8), (WINDOW, 3), (WINDOW + 3, 6), (12, 4)):
        generate(model, length, count)
    assert model.step.statistics["uncached"] == 0
    again = Decoder(tmp_path).eval()
    again.load_state_dict(model.state_dict())
    for length, count in ((4, 5), (3, 8), (WINDOW, 3), (WINDOW + 3, 6), (12, 4)):
        generate(again, length, count)
    for method in (again.prompt, again.step):
        counts = method.statistics
        assert counts["loaded"] > 0 and counts["traced"] == counts["uncached"] == 0
