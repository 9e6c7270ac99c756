"""A causal language model with a static cache, served by two cached methods: prefill and decode."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from kernelmill.inference import cache_compile

TOKENS = 64


class Server(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.cached_prefill = cache_compile(self.prefill)
        self.cached_decode = cache_compile(self.decode, dynamic=False)

    def prefill(self, ids, positions, cache):
        out = self.model(input_ids=ids, position_ids=positions, past_key_values=cache)
        return out.logits[:, -1]

    def decode(self, ids, positions, cache):
        out = self.model(input_ids=ids, position_ids=positions, past_key_values=cache)
        return out.logits[:, -1]

    def generate(self, ids, config):
        cache = StaticCache(config=config, max_cache_len=96)
        cache.early_initialization(1, config.num_key_value_heads, 16, torch.float32, "cpu")
        prompt = ids.shape[1]
        logits = self.cached_prefill(ids, torch.arange(prompt)[None], cache)
        tokens = [*ids[0].tolist(), int(logits.argmax())]
        while len(tokens) < prompt + TOKENS:
            position = torch.tensor([[len(tokens) - 1]])
            logits = self.cached_decode(torch.tensor([tokens[-1:]]), position, cache)
            tokens.append(int(logits.argmax()))
        return tokens


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=97, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, eos_token_id=None,
)  # fmt: skip
server = Server(LlamaForCausalLM(config).eval())
ids = torch.randint(0, 97, (1, 7))
with torch.no_grad():
    expected = server.model.generate(ids, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
    assert server.generate(ids, config) == expected[0].tolist()
print(server.cached_prefill.statistics, server.cached_decode.statistics)
