"""Hugging Face's generate() on cached methods: chunked prompts, padded batches, packed weights."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

pytest.importorskip("transformers")

import transformers

from kernelmill.runtime.weights import packing
from tests.kept_methods import KEPT

pytestmark = KEPT

CONFIG = transformers.LlamaConfig(
    vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    pad_token_id=0,
)  # fmt: skip
ONCE = {"loaded": 0, "traced": 1, "uncached": 0}


def eager() -> Any:
    torch.manual_seed(2)
    model = transformers.LlamaForCausalLM(CONFIG).eval()
    with torch.no_grad():  # as they come, random weights make every token nearly as likely
        model.lm_head.weight.normal_(0.0, 1.0)
    return model


def cached(model: Any, folder: Path, dynamic_cache: bool = False) -> Any:
    from examples.cached_decoder import CachedDecoder

    found = CachedDecoder(CONFIG, str(folder / "methods"), dynamic_cache).eval()
    found.load_state_dict(model.state_dict())
    return found


def static_cache(batch: int) -> Any:
    cache = transformers.StaticCache(CONFIG, max_cache_len=64)
    cache.early_initialization(batch, 2, 16, torch.float32, torch.device("cpu"))
    return cache


def tokens(model: Any, prompt: Tensor, count: int = 10, mask: Any = None, **options: Any) -> Tensor:
    cache = options.pop("cache", None)
    if cache is None:
        cache = static_cache(len(prompt))
    mask = torch.ones_like(prompt) if mask is None else mask
    with torch.no_grad():
        return model.generate(
            prompt, attention_mask=mask, past_key_values=cache, max_new_tokens=count,
            do_sample=False, disable_compile=True, **options,
        )  # fmt: skip


def prompt_of(length: int, batch: int = 1) -> Tensor:
    return torch.randint(1, 211, (batch, length), generator=torch.Generator().manual_seed(length))


def test_tokens_prompts_chunks_and_padded_batches(tmp_path: Path) -> None:
    reference = eager()
    model = cached(reference, tmp_path)
    for length, count in ((7, 12), (12, 30)):
        expected = tokens(reference, prompt_of(length), count)
        assert torch.equal(tokens(model, prompt_of(length), count), expected)
        assert len(expected[0, length:].unique()) > 4, "a constant sequence would prove nothing"
        assert model.step.statistics == model.prompt.statistics == ONCE
    long = prompt_of(14)
    found = tokens(model, long, prefill_chunk_size=4)
    assert torch.equal(found, tokens(reference, long))
    assert model.step.statistics == ONCE, "the step is the one for whole prompts"
    traced = model.prompt.statistics["traced"]
    tokens(model, long, prefill_chunk_size=5)
    assert model.prompt.statistics["traced"] == traced <= 2

    batch, mask = prompt_of(9, 3), torch.ones(3, 9, dtype=torch.int64)
    mask[0, :4] = mask[1, :2] = 0
    found = tokens(model, batch * mask, mask=mask)
    assert torch.equal(found, tokens(reference, batch * mask, mask=mask))
    for row in range(2):  # padding changes nothing of a sequence
        start = int((1 - mask[row]).sum())
        alone = tokens(reference, batch[row : row + 1, start:])
        assert torch.equal(found[row, 9:], alone[0, 9 - start :])
    assert model.step.statistics["uncached"] == model.prompt.statistics["uncached"] == 0

    again = cached(reference, tmp_path)
    assert torch.equal(tokens(again, batch * mask, mask=mask), found)
    assert again.step.statistics == again.prompt.statistics == {**ONCE, "loaded": 1, "traced": 0}


def packed_bytes() -> int:
    """Of all that this process keeps packed."""
    gc.collect()
    found = 0
    for part in list(packing._parts.values()):
        found += sum(tensor.nbytes for tensor in part.tensors)
    return found


@pytest.mark.parametrize("weights", ["float32", "int4"])
def test_prompt_and_step_share_packed_weights(weights: str, tmp_path: Path) -> None:
    model = cached(eager(), tmp_path)
    if weights == "int4":
        pytest.importorskip("torchao")
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
        from torchao.quantization import quantize_
        from torchao.utils import unwrap_tensor_subclass

        config = PrototypeInt4WeightOnlyConfig(group_size=32, set_inductor_config=False)
        quantize_(model.model, config)
        unwrap_tensor_subclass(model)
    before = packed_bytes()
    with torch.no_grad():
        cache, mask = static_cache(1), torch.ones(1, 1, 1, 64, dtype=torch.bool)
        model.step(prompt_of(1), mask, torch.zeros(1, 1, dtype=torch.int64), cache)
        alone = packed_bytes() - before
        model.prompt(prompt_of(9), mask.expand(1, 1, 9, 64).clone(), torch.arange(9)[None], cache)
    both = packed_bytes() - before
    assert model.step.statistics == model.prompt.statistics == ONCE
    assert 0 < alone <= both <= alone * 1.05


def test_a_dynamic_cache_is_traced_once_for_all_lengths(tmp_path: Path) -> None:
    reference = eager()

    def run(model: Any, length: int, count: int) -> None:
        caches = [transformers.DynamicCache(config=CONFIG) for _ in range(2)]
        found, expected = (
            tokens(each, prompt_of(length), count, cache=cache)
            for each, cache in zip((model, reference), caches, strict=True)
        )
        assert torch.equal(found, expected)
        for layer, other in zip(caches[0].layers, caches[1].layers, strict=True):
            assert layer.__dict__.keys() == other.__dict__.keys()
            torch.testing.assert_close(layer.keys, other.keys)

    model = cached(reference, tmp_path, dynamic_cache=True)
    run(model, 7, 6)
    graphs = counters["stats"]["unique_graphs"]
    for length, count in ((9, 6), (12, 30)):
        run(model, length, count)
        assert model.step.statistics == model.prompt.statistics == ONCE
    assert counters["stats"]["unique_graphs"] == graphs
    long = prompt_of(14)
    caches = [transformers.DynamicCache(config=CONFIG) for _ in range(2)]
    found = tokens(model, long, cache=caches[0], prefill_chunk_size=4)
    assert torch.equal(found, tokens(reference, long, cache=caches[1]))
    assert model.step.statistics == ONCE, "the step is the one for whole prompts"
    assert model.prompt.statistics["uncached"] == 0

    again = cached(reference, tmp_path, dynamic_cache=True)
    run(again, 12, 20)
    assert again.step.statistics == again.prompt.statistics == {**ONCE, "loaded": 1, "traced": 0}
