"""Decoders of the Llama type: shapes, files of llama.cpp, and stateful models of OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from tools.bench.peers import open_vino_request


def llama(
    layers: int, hidden: int, heads: int, kv_heads: int, inner: int, vocabulary: int, tied: bool
) -> Any:
    """Return a shape as transformers has it; `tied`: embedding and head share a weight."""
    return transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        tie_word_embeddings=tied, max_position_embeddings=2048, rms_norm_eps=1e-5,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip


SMOL = llama(30, 576, 9, 3, 1536, 49152, tied=True)
LARGE = llama(22, 2048, 32, 4, 5632, 32000, tied=False)


def write_llama(path: Path, config: Any, kind: str, seed: int) -> None:
    """Write a file (GGUF) for a config of transformers, with random weights; all matrices are of
    `kind`, "Q8_0" or "Q4_0". Without a vocabulary: tokens are numbers."""
    import gguf

    numbers = np.random.default_rng(seed)
    quantised = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    hidden, inner = config.hidden_size, config.intermediate_size
    head = hidden // config.num_attention_heads
    kv = head * config.num_key_value_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(hidden)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")

    def matrix(name: str, rows: int, columns: int) -> None:
        values = numbers.standard_normal((rows, columns), dtype=np.float32) * 0.02
        data = gguf.quants.quantize(values, quantised)
        writer.add_tensor(name, data, raw_dtype=quantised)

    matrix("token_embd.weight", config.vocab_size, hidden)
    norms = ["output_norm"]
    if not config.tie_word_embeddings:
        matrix("output.weight", config.vocab_size, hidden)
    for layer in range(config.num_hidden_layers):
        for name, rows, columns in (
            ("attn_q", hidden, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden), ("ffn_gate", inner, hidden),
            ("ffn_up", inner, hidden), ("ffn_down", hidden, inner),
        ):  # fmt: skip
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
        norms += [f"blk.{layer}.attn_norm", f"blk.{layer}.ffn_norm"]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class _Step(nn.Module):
    """`(ids (1, 1), position (1, 1), keys and values of each layer) -> (logits, all of these)`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, position: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        cache = transformers.DynamicCache(config=self.model.config)
        for number, layer in enumerate(cache.layers):
            keys, values = past[2 * number : 2 * number + 2]
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
        found = self.model(
            input_ids=ids, position_ids=position, past_key_values=cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        kept = [each for layer in cache.layers for each in (layer.keys, layer.values)]
        return found.logits, *kept


def step_of(model: Any) -> Any:
    """Return a request for the step in bfloat16, by as many threads as torch has. Keys and values
    are the model's state, to which each call adds one token, the way in which OpenVINO's own tools
    convert decoders."""
    import openvino
    from openvino import PartialShape
    from openvino._offline_transformations import apply_make_stateful_transformation

    config = model.config
    plain = transformers.LlamaForCausalLM(config).eval()
    plain.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    keys = torch.zeros(1, config.num_key_value_heads, 3, config.head_dim)
    past = [keys.clone() for _ in range(2 * config.num_hidden_layers)]
    example = (torch.ones(1, 1, dtype=torch.int64), torch.full((1, 1), 3), *past)
    with torch.no_grad():
        converted = openvino.convert_model(_Step(plain), example_input=example)
    shape = PartialShape([1, config.num_key_value_heads, -1, config.head_dim])
    states: dict[str, str] = {}
    for number, entry in enumerate(converted.inputs):
        entry.get_node().set_partial_shape(shape if number > 1 else PartialShape([1, 1]))
        if number > 1:
            entry.get_tensor().set_names({f"past.{number - 2}"})
            converted.outputs[number - 1].get_tensor().set_names({f"kept.{number - 2}"})
            states[f"past.{number - 2}"] = f"kept.{number - 2}"
    converted.validate_nodes_and_infer_types()
    apply_make_stateful_transformation(converted, states)
    return open_vino_request(converted, "bf16")
