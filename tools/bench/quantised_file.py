"""Decoders of the Llama type with random weights, in the file format of llama.cpp (GGUF)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def write_llama(path: Path, config: Any, kind: str, seed: int) -> None:
    """A file for a config of transformers; all matrices are of `kind`, "Q8_0" or "Q4_0". Without
    a vocabulary: tokens are numbers."""
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

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(hidden, np.float32))

    matrix("token_embd.weight", config.vocab_size, hidden)
    norm("output_norm.weight")
    if not config.tie_word_embeddings:
        matrix("output.weight", config.vocab_size, hidden)
    for layer in range(config.num_hidden_layers):
        for name, rows, columns in (
            ("attn_q", hidden, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden), ("ffn_gate", inner, hidden),
            ("ffn_up", inner, hidden), ("ffn_down", hidden, inner),
        ):  # fmt: skip
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
        norm(f"blk.{layer}.attn_norm.weight")
        norm(f"blk.{layer}.ffn_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
