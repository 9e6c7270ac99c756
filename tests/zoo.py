"""Models that the tests and the benchmark run: from configs with random weights, and MiniLM.

Every builder returns a `Case`: a module in eval mode and its positional arguments. The weights and
the arguments depend on the seed alone. `small=True` keeps the structure and shrinks every size, so
that a test takes a second; `small=False` is the model as published.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import transformers as hf

import examples.demo

SEED = 20


@dataclass(frozen=True)
class Case:
    """A model ready to be called as `case.model(*case.args)`. `shape` says the sizes in words."""

    name: str
    model: nn.Module
    args: tuple[Tensor, ...]
    shape: str = field(default="", compare=False)

    def run(self) -> Any:
        """The eager result."""
        with torch.no_grad():
            return self.model(*self.args)


class EncoderDecoder(nn.Module):
    """A model of transformers, called with what its encoder and its decoder take."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, encoded: Tensor, decoded: Tensor) -> Any:
        return self.model(encoded, decoder_input_ids=decoded)


def _tokens(vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(0, vocabulary, shape)


def _padding_mask(batch: int, length: int) -> Tensor:
    """(batch, length) int64: every row one token shorter than the row before it."""
    lengths = length - torch.arange(batch)[:, None]
    return (torch.arange(length)[None] < lengths).long()


def with_statistics(model: nn.Module) -> nn.Module:
    """Give batch norms running statistics as training would: fresh ones (0 and 1) hide errors."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.normal_(0.0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model


def bert(small: bool = True, attention: str = "sdpa") -> Case:
    """Encoder with a padding mask. Full: BERT-base, 1 x 128 tokens."""
    torch.manual_seed(SEED)
    batch, length = (2, 12) if small else (1, 128)
    config = hf.BertConfig(attn_implementation=attention)
    if small:
        config = hf.BertConfig(
            vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=48, max_position_embeddings=32, attn_implementation=attention,
        )  # fmt: skip
    model = hf.BertModel(config).eval()
    args = (_tokens(config.vocab_size, batch, length), _padding_mask(batch, length))
    return Case("bert", model, args, f"{batch} x {length} tokens")


def gpt2(small: bool = True, attention: str = "sdpa") -> Case:
    """Causal decoder without a cache. Full: GPT-2 (124M), 1 x 128 tokens."""
    torch.manual_seed(SEED)
    batch, length = (2, 11) if small else (1, 128)
    config = hf.GPT2Config(use_cache=False, attn_implementation=attention)
    if small:
        config = hf.GPT2Config(
            vocab_size=99, n_positions=32, n_embd=32, n_layer=2, n_head=4,
            use_cache=False, attn_implementation=attention,
        )  # fmt: skip
    model = hf.GPT2LMHeadModel(config).eval()
    return Case("gpt2", model, (_tokens(config.vocab_size, batch, length),), f"{batch} x {length}")


def vit(small: bool = True, attention: str = "sdpa") -> Case:
    """Vision transformer. Full: ViT-base/16 at 224 x 224."""
    torch.manual_seed(SEED)
    config = hf.ViTConfig(attn_implementation=attention)
    if small:
        config = hf.ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            image_size=32, patch_size=8, attn_implementation=attention,
        )  # fmt: skip
    batch, size = (2 if small else 1), cast(int, config.image_size)
    model = hf.ViTModel(config).eval()
    args = (torch.randn(batch, 3, size, size),)
    return Case("vit", model, args, f"{batch} x 3 x {size} x {size}")


def resnet50(small: bool = True) -> Case:
    """Convolutions and batch norm. Full: ResNet-50 at 224 x 224."""
    torch.manual_seed(SEED)
    config = hf.ResNetConfig()
    if small:
        widths = [16, 32, 32, 64]
        config = hf.ResNetConfig(embedding_size=8, hidden_sizes=widths, depths=[1, 2, 1, 1])
    batch, size = (2, 48) if small else (1, 224)
    model = with_statistics(hf.ResNetModel(config).eval())
    args = (torch.randn(batch, 3, size, size),)
    return Case("resnet50", model, args, f"{batch} x 3 x {size} x {size}")


def whisper_encoder(small: bool = True, attention: str = "sdpa") -> Case:
    """Conv1d stem and encoder. Full: Whisper-base, 30 s of audio (1 x 80 x 3000 mel frames)."""
    torch.manual_seed(SEED)
    config = hf.WhisperConfig(
        d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048,
        attn_implementation=attention,
    )  # fmt: skip
    if small:
        config = hf.WhisperConfig(
            vocab_size=99, num_mel_bins=8, encoder_layers=2, encoder_attention_heads=4, d_model=32,
            encoder_ffn_dim=48, max_source_positions=20, attn_implementation=attention,
        )  # fmt: skip
    # Here, since it takes a second to import.
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    model = WhisperEncoder(config).eval()
    frames = 2 * config.max_source_positions
    features = torch.randn(1, config.num_mel_bins, frames)
    return Case("whisper_encoder", model, (features,), f"1 x {config.num_mel_bins} x {frames}")


def t5(small: bool = True) -> Case:
    """Encoder and decoder with relative position bias. Full: T5-small, 64 and 32 tokens."""
    torch.manual_seed(SEED)
    config = hf.T5Config(use_cache=False)
    if small:
        config = hf.T5Config(
            vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False
        )
    source, target = (12, 7) if small else (64, 32)
    batch = 2 if small else 1
    args = (
        _tokens(config.vocab_size, batch, source),
        _padding_mask(batch, source),
        _tokens(config.vocab_size, batch, target),
    )
    return Case("t5", hf.T5Model(config).eval(), args, f"{batch} x {source} to {target} tokens")


def llama(small: bool = True, attention: str = "sdpa") -> hf.LlamaForCausalLM:
    """A Llama-type decoder with grouped-query attention; `generate` below drives it."""
    torch.manual_seed(SEED)
    config = hf.LlamaConfig(
        vocab_size=32000, hidden_size=512, intermediate_size=1792, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=1024,
        attn_implementation=attention,
    )  # fmt: skip
    if small:
        config = hf.LlamaConfig(
            vocab_size=211, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            attn_implementation=attention,
        )  # fmt: skip
    model = hf.LlamaForCausalLM(config).eval()
    with torch.no_grad():  # default weights give nearly equal logits, and so a boring sequence
        model.lm_head.weight.normal_(0.0, 1.0)
    return model


EXPERTS = ("mixtral", "qwen2", "qwen3", "deepseek", "gpt_oss")
"""Families of models in which each token goes through a few of many feed-forward parts."""


def experts(family: str) -> Any:
    """A decoder of one layer with 8 or 16 experts, of which each token has 2 or 4."""
    torch.manual_seed(SEED)
    shared: dict[str, Any] = {
        "vocab_size": 211, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "max_position_embeddings": 64,
    }  # fmt: skip
    if family == "mixtral":
        config = hf.MixtralConfig(intermediate_size=48, num_key_value_heads=2, **shared)
        model = hf.MixtralForCausalLM(config)
    elif family in ("qwen2", "qwen3"):
        shared |= {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 40}
        if family == "qwen2":
            shared |= {"shared_expert_intermediate_size": 24, "num_key_value_heads": 4}
            model = hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(**shared))
        else:
            shared |= {"head_dim": 16, "num_key_value_heads": 2}
            model = hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**shared))
    elif family == "deepseek":
        config = hf.DeepseekV3Config(
            moe_intermediate_size=40, first_k_dense_replace=0, num_key_value_heads=4,
            n_routed_experts=16, n_group=4, topk_group=2, num_experts_per_tok=4, kv_lora_rank=32,
            q_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, **shared,
        )  # fmt: skip
        model = hf.DeepseekV3ForCausalLM(config)
    else:
        config = hf.GptOssConfig(
            intermediate_size=48, head_dim=16, num_key_value_heads=2, num_local_experts=8,
            num_experts_per_tok=4, **shared,
        )  # fmt: skip
        model = hf.GptOssForCausalLM(config)
    with torch.no_grad():  # default weights give nearly equal logits and equally likely experts
        for name, weight in model.named_parameters():
            if name.endswith(("lm_head.weight", "gate.weight", "router.weight")):
                weight.normal_(0.0, 1.0)
    return model.eval()


Step = Callable[[Tensor, hf.StaticCache], Tensor]


def decode_step(model: hf.LlamaForCausalLM) -> Step:
    """`step(token (B, 1) int64, cache) -> next token (B, 1)`: greedy; writes the cache in place."""

    def step(token: Tensor, cache: hf.StaticCache) -> Tensor:
        logits = model(token, past_key_values=cache, use_cache=True).logits
        return logits[:, -1:].argmax(dim=-1)

    return step


def generate(model: hf.LlamaForCausalLM, step: Step, prompt: Tensor, count: int) -> Tensor:
    """`count` greedy tokens after `prompt` (B, P): prefill in eager, then `step` for each token.

    Returns (B, count) int64.
    """
    cache = hf.StaticCache(config=model.config, max_cache_len=prompt.shape[1] + count)
    with torch.no_grad():
        token = decode_step(model)(prompt, cache)
        tokens = [token]
        while len(tokens) < count:
            token = step(token, cache).clone()
            tokens.append(token)
    return torch.cat(tokens, dim=1)


def mlp(blocks: int = 8, width: int = 64, batch: int = 4) -> Case:
    """Blocks of Linear, GELU and LayerNorm: small enough that overhead is all that counts."""
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for _ in range(blocks):
        layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    args = (torch.randn(batch, width),)
    return Case("mlp", nn.Sequential(*layers).eval(), args, f"{batch} x {width}, {blocks} blocks")


class _DecoderLayer(nn.Module):
    """Pre-norm layer of a decoder step: RoPE, grouped-query attention over a cache, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, cache: int) -> None:
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.head, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.keys: Tensor
        self.values: Tensor
        self.register_buffer("keys", torch.randn(1, groups, cache, self.head))
        self.register_buffer("values", torch.randn(1, groups, cache, self.head))

    def _rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        low, high = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-high, low), dim=-1) * sine

    def forward(
        self, x: Tensor, position: Tensor, mask: Tensor, cosine: Tensor, sine: Tensor
    ) -> Tensor:
        qkv = self.qkv(self.attention_norm(x)).view(1, 1, -1, self.head).transpose(1, 2)
        query, key, value = qkv.split((self.heads, self.groups, self.groups), dim=1)
        self.keys.index_copy_(2, position, self._rotate(key, cosine, sine))
        self.values.index_copy_(2, position, value)
        attended = nn.functional.scaled_dot_product_attention(
            self._rotate(query, cosine, sine), self.keys, self.values, mask, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).reshape(1, 1, -1))
        inner = self.mlp_norm(x)
        return x + self.down(nn.functional.silu(self.gate(inner)) * self.up(inner))


class DecoderStep(nn.Module):
    """One token through a decoder: `(hidden (1, 1, width), position (1,) int64) -> hidden`.

    The caches are buffers and are written in place at `position`.
    """

    def __init__(
        self, layers: int, width: int, heads: int, groups: int, hidden: int, cache: int
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            _DecoderLayer(width, heads, groups, hidden, cache) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width)
        half = width // heads // 2
        self.frequencies: Tensor
        self.slots: Tensor
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("slots", torch.arange(cache))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        angle = position[:, None] * self.frequencies
        angle = torch.cat((angle, angle), dim=-1)
        mask = (self.slots <= position)[None, None, None]
        for layer in self.layers:
            x = layer(x, position, mask, angle.cos(), angle.sin())
        return self.norm(x)


def decoder_step(small: bool = True) -> Case:
    """Full: 8 layers, width 512, 8 heads in 2 groups, cache of 512, batch 1 (109 MB of weights)."""
    torch.manual_seed(SEED)
    sizes = (2, 32, 4, 2, 48, 16) if small else (8, 512, 8, 2, 1792, 512)
    width, cache = sizes[1], sizes[-1]
    args = (torch.randn(1, 1, width), torch.tensor([cache // 2]))
    return Case("decoder_step", DecoderStep(*sizes).eval(), args, f"1 token, cache {cache}")


def minilm(sentences: tuple[str, ...] = examples.demo.SENTENCES) -> Case:
    """The sentence-embedding model with its real weights, on real sentences."""
    tokenizer, model = examples.demo.load()
    args = examples.demo.encode(tokenizer, sentences)
    batch, length = args[0].shape
    return Case("minilm", model, args, f"{batch} x {length} tokens")


BUILDERS: dict[str, Callable[..., Case]] = {
    "bert": bert,
    "gpt2": gpt2,
    "vit": vit,
    "resnet50": resnet50,
    "whisper_encoder": whisper_encoder,
    "t5": t5,
    "decoder_step": decoder_step,
}
"""The builders that take `small`."""

WITH_ATTENTION = ("bert", "gpt2", "vit", "whisper_encoder")
"""The builders that take `attention`, "sdpa" or "eager"."""
