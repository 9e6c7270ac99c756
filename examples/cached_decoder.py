"""A decoder of Hugging Face for `generate()` whose forward is two cached methods: one for a single
token a sequence, and one for prompts of any length.

    decoder = CachedDecoder(config, "cache").eval()
    decoder.generate(prompt, past_key_values=..., disable_compile=True)

A later process loads both without tracing. Weights may be quantised by torchao and unwrapped.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from kernelmill.inference import cache_compile


class CachedDecoder(transformers.LlamaForCausalLM):
    """A decoder of the Llama type; `cache_dir` as `cache_compile` takes it.

    `calls` counts those of each method. With a static cache the step for one token has one shape;
    with a dynamic one it is for all lengths of the cache.
    """

    def __init__(
        self, config: Any, cache_dir: str | None = None, dynamic_cache: bool = False
    ) -> None:
        super().__init__(config)
        self.step = cache_compile(self.one_token, dynamic=dynamic_cache, cache_dir=cache_dir)
        self.prompt = cache_compile(self.many_tokens, cache_dir=cache_dir)

    def one_token(self, ids: Tensor, mask: Any, positions: Tensor, cache: Any) -> Tensor:
        """Logits (batch, 1, vocabulary) after one more token of each sequence."""
        if mask is None and isinstance(cache, transformers.StaticCache):
            # Nothing is padded: all keys are read that are there by now.
            length = cache.layers[0].keys.shape[-2]
            mask = (torch.arange(length) <= positions)[:, None, None]
        return self._logits(ids, mask, positions, cache)

    def many_tokens(self, ids: Tensor, mask: Any, positions: Tensor, cache: Any) -> Tensor:
        """Logits (batch, 1, vocabulary) after the last of several tokens of each sequence."""
        return self._logits(ids, mask, positions, cache)

    def _logits(self, ids: Tensor, mask: Any, positions: Tensor, cache: Any) -> Tensor:
        found = super().forward(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        return found.logits

    def prepare_inputs_for_generation(
        self, input_ids: Any, next_sequence_length: Any = None, past_key_values: Any = None,
        attention_mask: Any = None, position_ids: Any = None, **others: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """What `forward` is called with. For a single token and a static cache little of what
        `generate()` does for any model is needed, and a token takes some 0.2 ms less without it."""
        static = isinstance(past_key_values, transformers.StaticCache)
        if not static or next_sequence_length != 1:
            return super().prepare_inputs_for_generation(
                input_ids, next_sequence_length, past_key_values, attention_mask,
                position_ids=position_ids, **others,
            )  # fmt: skip
        keys = None
        if attention_mask is not None:
            rows, seen = attention_mask.shape
            keys = torch.zeros(rows, 1, 1, past_key_values.get_max_length(), dtype=torch.bool)
            keys[:, 0, 0, :seen] = attention_mask
        return {
            "input_ids": input_ids[:, -1:],
            "attention_mask": keys,
            "position_ids": position_ids[:, -1:],
            "past_key_values": past_key_values,
        }

    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None,
        past_key_values: Any = None, **_: Any,
    ) -> CausalLMOutputWithPast:  # fmt: skip
        """What `generate()` calls; it needs the last logits alone."""
        method = self.step if input_ids.shape[1] == 1 else self.prompt
        # A slice has the strides of all of it.
        ids, positions = (
            each.clone(memory_format=torch.contiguous_format) for each in (input_ids, position_ids)
        )
        logits = method(ids, attention_mask, positions, past_key_values)
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)
