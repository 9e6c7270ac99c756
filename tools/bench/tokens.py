"""Tokens a second of small language models, beside llama.cpp, OpenVINO and eager.

Rows: `bf16`, `int8`, `int4` of a decoder of SmolLM2-135M's shape, and `1b`, one of 1.1 billion
numbers in int4, with its share of the rate at which a plain loop on all threads reads memory.
Weights are random. Contestants make the same number of tokens, greedily, after a prompt of eight,
one after the other in turns; figures are medians. Each turn begins with a pause and with some
tokens that are not counted, so that nobody finds the caches or the processors as another one has
left them; the first round does not count.

kernelmill  Hugging Face's generate() with a static cache on cached methods, examples/cached_decoder
eager       the same without a compiler
OpenVINO    the step for one token with a cache that stays in the model (a stateful model), called
            from a loop in Python that takes the largest logit
llama.cpp   a file of the same shape in its own format, Q8_0 or Q4_0, by its own loop and sampler

int8 has a scale for each output, Q8_0 one for 32 numbers; int4 has a scale and a zero for 32
numbers, Q4_0 a scale. Beside the rates is the error of the logits after the prompt, against the
same model with its dequantised weights in float32, as a part of the largest logit.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from examples.cached_decoder import CachedDecoder
from kernelmill.inference import finish_packing
from tools.bench.harness import Page, Rows, Table, spent
from tools.bench.other_decoders import LARGE, SMOL, step_of, write_llama

PROMPT, TOKENS, ROUNDS = 8, 64, 5
SETTLES = 0.5
"""Seconds between contestants: threads of the last one spin for a while after their work."""

READ = 2**28
"""Bytes that no cache has."""

_SEED = 7
Generate = Callable[[int], int]
"""`generate(count)`: makes so many tokens after the prompt; gives the last."""


def prompt_of(config: Any) -> Tensor:
    """Return token ids (1, PROMPT) int64."""
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(1, config.vocab_size, (1, PROMPT), generator=generator)


def cache_of(model: CachedDecoder, length: int) -> Any:
    """Return an empty static cache."""
    config = model.config
    cache = transformers.StaticCache(config, max_cache_len=length)
    heads, size = config.num_key_value_heads, config.head_dim
    cache.early_initialization(1, heads, size, model.dtype, model.device)
    return cache


def quantise(model: Any, weights: str) -> None:
    """Quantise the linear layers by torchao, in place; embeddings stay as they are."""
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    from torchao.utils import unwrap_tensor_subclass

    if model.config.tie_word_embeddings:
        head = model.lm_head.weight.detach().clone()
        model.lm_head.weight = torch.nn.Parameter(head, requires_grad=False)
    if weights == "int8":
        config: Any = Int8WeightOnlyConfig(set_inductor_config=False)
    else:
        config = PrototypeInt4WeightOnlyConfig(group_size=32, set_inductor_config=False)
    quantize_(model, config)
    unwrap_tensor_subclass(model)


def make_model(config: Any, weights: str, folder: str) -> CachedDecoder:
    """Return a decoder in bfloat16 in eval mode, quantised where `weights` says so."""
    torch.manual_seed(_SEED)
    model = CachedDecoder(config, folder).to(torch.bfloat16).eval()
    if weights != "bf16":
        quantise(model, weights)
    return model


def hugging_face(model: CachedDecoder, compiled: bool) -> Generate:
    """Return generate() with a static cache, by cached methods or by eager."""
    cache = cache_of(model, PROMPT + TOKENS)
    prompt, forward = prompt_of(model.config), model.forward
    plain = super(CachedDecoder, model).forward

    def generate(count: int) -> int:
        cache.reset()
        model.forward = forward if compiled else plain
        found = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), past_key_values=cache,
            max_new_tokens=count, do_sample=False, disable_compile=True,
        )  # fmt: skip
        return int(found[0, -1])

    return generate


def llama_cpp(file: Path, config: Any) -> Generate:
    """Return llama.cpp's own evaluation and sampling, from a file in its format."""
    import llama_cpp as library

    threads = torch.get_num_threads()
    model = library.Llama(
        str(file), n_ctx=PROMPT + TOKENS, n_threads=threads, n_threads_batch=threads,
        verbose=False, logits_all=False,
    )  # fmt: skip
    prompt = prompt_of(config)[0].tolist()

    def generate(count: int) -> int:
        model.reset()
        *_, last = itertools.islice(model.generate(prompt, temp=0.0), count)
        return int(last)

    return generate


def openvino(model: CachedDecoder) -> Generate:
    """Return the loop over the step for one token, whose cache is the model's own state."""
    step = step_of(model)
    prompt = prompt_of(model.config)[0].tolist()

    def generate(count: int) -> int:
        step.reset_state()
        last = 0
        for position in range(PROMPT + count - 1):
            token = prompt[position] if position < PROMPT else last
            feeds = [np.array([[number]], np.int64) for number in (token, position)]
            step.infer(feeds, share_inputs=True)
            last = int(step.get_output_tensor(0).data[0, -1].argmax())
        return last

    return generate


def reading() -> Generate:
    """Return what reads so many bytes from memory, on all threads, in the place of a token."""
    data = torch.ones(READ // 8, dtype=torch.int64)
    return lambda count: int(sum(data.sum() for _ in range(count)))


def measured(contestants: dict[str, Generate], tokens: int, rounds: int) -> dict[str, float]:
    """Return tokens a second of each, prompts taken off: medians of rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, generate in contestants.items():
            time.sleep(SETTLES)
            generate(tokens // 4)
            one, many = (spent(lambda: generate(count)) for count in (1, tokens))  # noqa: B023
            if turn:
                times[name].append((tokens - 1) / (many - one))
        finish_packing()
    return {name: statistics.median(each) for name, each in times.items()}


def bytes_of_weights(model: Any) -> int:
    """Return the bytes that a token reads: all parameters and buffers but a table that is looked up
    in."""
    embedding = model.get_input_embeddings().weight
    tied = model.config.tie_word_embeddings and model.lm_head.weight is embedding
    whole = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    return whole - (0 if tied else embedding.nbytes)


def error_of(model: CachedDecoder) -> float:
    """Return the error of the logits after the prompt, against float32 with the dequantised
    weights."""
    reference = transformers.LlamaForCausalLM(model.config).eval()
    named = dict(reference.named_modules())
    with torch.no_grad():
        for name in named:
            weight = getattr(model.get_submodule(name), "weight", None)
            if weight is None:
                continue
            if hasattr(weight, "scale_and_zero"):  # which has no other way to its numbers
                eye = torch.eye(weight.shape[1], dtype=weight.dtype)
                weight = torch.nn.functional.linear(eye, weight).T
            elif hasattr(weight, "dequantize") and type(weight) is not torch.nn.Parameter:
                weight = weight.dequantize(torch.float32)
            named[name].weight = torch.nn.Parameter(weight.detach().float())
        places, mask = torch.arange(PROMPT)[None], torch.ones(PROMPT, PROMPT, dtype=torch.bool)
        cache, prompt = cache_of(model, PROMPT), prompt_of(model.config)
        found = model.prompt(prompt, mask.tril()[None, None], places, cache)[:, -1]
        exact = reference(prompt).logits[:, -1]
    return float((found.float() - exact).abs().max() / exact.abs().max())


@dataclass(frozen=True)
class Row:
    """What is measured: a shape, its weights, and against whom with which goal."""

    shape: Any
    weights: str
    peer: str
    goal: float


ROWS = {
    "bf16": Row(SMOL, "bf16", "OpenVINO", 2.0),
    "int8": Row(SMOL, "int8", "llama.cpp Q8_0", 1.3),
    "int4": Row(SMOL, "int4", "llama.cpp Q4_0", 1.2),
    "1b": Row(LARGE, "int4", "", 0.85),
}


def measure(name: str, row: Row, tokens: int = TOKENS, rounds: int = ROUNDS) -> Rows:
    """Measure a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(row.shape, row.weights, folder)
        contestants = {"kernelmill": hugging_face(model, compiled=True)}
        if name == "bf16":
            contestants["eager"] = hugging_face(model, compiled=False)
            contestants[row.peer] = openvino(model)
        elif not row.peer:
            contestants["memory"] = reading()
        else:
            file = Path(folder) / f"{name}.gguf"
            write_llama(file, model.config, row.peer.split()[1], _SEED)
            contestants[row.peer] = llama_cpp(file, row.shape)
        found = measured(contestants, tokens, rounds)
        own, error = found["kernelmill"], f"{error_of(model):.1e}"
    if not row.peer:
        rate = found["memory"] * READ
        share, beside = bytes_of_weights(model) * own / rate, f"memory at {rate / 1e9:.1f} GB/s"
        yield name, f"{own:.1f}", beside, f"{share:.0%}", f"{row.goal:.0%}", error
        return
    others = ", ".join(f"{who} {rate:.1f}" for who, rate in found.items() if who != "kernelmill")
    yield name, f"{own:.1f}", others, f"{own / found[row.peer]:.2f}", f"{row.goal:.1f}", error


PAGE = Page("tokens", "docs/performance-tokens.md", "Performance of text generation", [
    Table("", ("row", "kernelmill, tokens a second", "beside", "ratio", "goal", "error"),
          {name: partial(measure, name, row) for name, row in ROWS.items()}),
])  # fmt: skip
