"""Tokens a second of small language models, beside llama.cpp, OpenVINO and eager.

python -m tools.bench.tokens [--small] [--rounds N] [--tokens N] [--write] [ROW ...]

prints a table; with --write, all rows measured, it goes into docs/performance-tokens.md.

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
llama.cpp   a file of the same shape in its own format, Q8_0 or Q4_0, by its own loop and sampler.
            The packages of the extra `bench` may lie in a folder that PYTHONPATH names

int8 has a scale for each output, Q8_0 one for 32 numbers; int4 has a scale and a zero for 32
numbers, Q4_0 a scale. Beside the rates is the error of the logits after the prompt, against the
same model with its dequantised weights in float32, as a part of the largest logit.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import torch
import transformers
from torch import Tensor

from examples.cached_decoder import CachedDecoder
from kernelmill.inference import finish_packing
from tools.bench.by_machine import publish
from tools.bench.quantised_file import write_llama
from tools.bench.tables import table
from tools.machine import description

PROMPT = 8
PAGE = Path("docs/performance-tokens.md")
_SEED = 7
SETTLES = 0.5
"""Seconds between contestants: threads of the last one spin for a while after their work."""

Generate = Callable[[int], int]
"""`generate(count)`: makes so many tokens after the prompt; gives the last."""


@dataclass(frozen=True)
class Shape:
    """A decoder of the Llama type; `tied`: embedding and head share a weight."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    tied: bool

    def config(self) -> Any:
        """As transformers has it."""
        return transformers.LlamaConfig(
            vocab_size=self.vocabulary, hidden_size=self.hidden, intermediate_size=self.inner,
            num_hidden_layers=self.layers, num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads, tie_word_embeddings=self.tied,
            max_position_embeddings=2048, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip


SMOL = Shape(30, 576, 9, 3, 1536, 49152, tied=True)
LARGE = Shape(22, 2048, 32, 4, 5632, 32000, tied=False)
SMALL = {"layers": 2, "vocabulary": 2048}


def prompt_of(shape: Shape) -> Tensor:
    """Token ids (1, PROMPT) int64."""
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(1, shape.vocabulary, (1, PROMPT), generator=generator)


def quantise(model: Any, weights: str) -> None:
    """The linear layers by torchao, in place; embeddings stay as they are."""
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


def make_model(shape: Shape, weights: str, folder: str) -> CachedDecoder:
    """A decoder in bfloat16 in eval mode, its layers quantised where `weights` says so."""
    torch.manual_seed(_SEED)
    model = CachedDecoder(shape.config(), folder).to(torch.bfloat16).eval()
    if weights != "bf16":
        quantise(model, weights)
    return model


def hugging_face(model: CachedDecoder, shape: Shape, tokens: int, compiled: bool) -> Generate:
    """generate() with a static cache, by cached methods or by eager."""
    cache = transformers.StaticCache(model.config, max_cache_len=PROMPT + tokens)
    head = shape.hidden // shape.heads
    cache.early_initialization(1, shape.kv_heads, head, model.dtype, model.device)
    prompt, forward = prompt_of(shape), model.forward
    plain = super(CachedDecoder, model).forward

    def generate(count: int) -> int:
        cache.reset()
        model.forward = forward if compiled else plain
        with torch.no_grad():
            found = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), past_key_values=cache,
                max_new_tokens=count, do_sample=False, disable_compile=True,
            )  # fmt: skip
        return int(found[0, -1])

    return generate


def llama(file: Path, shape: Shape, tokens: int) -> Generate:
    """llama.cpp's own evaluation and sampling, from a file in its format."""
    import llama_cpp

    threads = torch.get_num_threads()
    model = llama_cpp.Llama(
        str(file), n_ctx=PROMPT + tokens, n_threads=threads, n_threads_batch=threads,
        verbose=False, logits_all=False,
    )  # fmt: skip
    prompt = prompt_of(shape)[0].tolist()

    def generate(count: int) -> int:
        model.reset()
        *_, last = itertools.islice(model.generate(prompt, temp=0.0), count)
        return int(last)

    return generate


def openvino(model: CachedDecoder, shape: Shape) -> Generate:
    """The step for one token, whose cache is the model's own state."""
    from tools.bench.stateful_openvino import step_of

    step = step_of(model)
    prompt = prompt_of(shape)[0].tolist()

    def generate(count: int) -> int:
        step.reset()
        last = 0
        for position in range(PROMPT + count - 1):
            token = prompt[position] if position < PROMPT else last
            last = step(token, position)
        return last

    return generate


def measured(contestants: dict[str, Generate], tokens: int, rounds: int) -> dict[str, float]:
    """Tokens a second of each, prompts taken off: medians of rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, generate in contestants.items():
            time.sleep(SETTLES)
            generate(tokens // 4)
            spent = []
            for count in (1, tokens):
                start = time.perf_counter()
                generate(count)
                spent.append(time.perf_counter() - start)
            if turn:
                times[name].append((tokens - 1) / (spent[1] - spent[0]))
        finish_packing()
    return {name: statistics.median(each) for name, each in times.items()}


READ = 2**28
"""Bytes that no cache has."""


def reading() -> Generate:
    """Reads so many bytes from memory, on all threads in a plain loop, in the place of a token."""
    data = torch.ones(READ // 8, dtype=torch.int64)

    def generate(count: int) -> int:
        return int(sum(data.sum() for _ in range(count)))

    return generate


def bytes_of_weights(model: Any) -> int:
    """Bytes that a token reads: of all parameters and buffers but a table that is looked up in."""
    embedding = model.get_input_embeddings().weight
    tied = model.config.tie_word_embeddings and model.lm_head.weight is embedding
    whole = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    return whole - (0 if tied else embedding.nbytes)


@dataclass(frozen=True)
class Row:
    """What is measured: a shape, its weights, and against whom with which goal."""

    shape: Shape
    weights: str
    peer: str
    goal: float


ROWS = {
    "bf16": Row(SMOL, "bf16", "OpenVINO", 2.0),
    "int8": Row(SMOL, "int8", "llama.cpp Q8_0", 1.3),
    "int4": Row(SMOL, "int4", "llama.cpp Q4_0", 1.2),
    "1b": Row(LARGE, "int4", "", 0.85),
}


def error_of(model: CachedDecoder, shape: Shape) -> float:
    """Of the logits after the prompt, against float32 with the dequantised weights."""
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
        cache = transformers.StaticCache(model.config, max_cache_len=PROMPT)
        cache.early_initialization(
            1, shape.kv_heads, shape.hidden // shape.heads, model.dtype, model.device
        )
        places, mask = torch.arange(PROMPT)[None], torch.ones(PROMPT, PROMPT, dtype=torch.bool)
        found = model.prompt(prompt_of(shape), mask.tril()[None, None], places, cache)[:, -1]
        exact = reference(prompt_of(shape)).logits[:, -1]
    return float((found.float() - exact).abs().max() / exact.abs().max())


def measure(name: str, row: Row, tokens: int, rounds: int, folder: str) -> list[str]:
    """A row of the table."""
    model = make_model(row.shape, row.weights, folder)
    contestants = {"kernelmill": hugging_face(model, row.shape, tokens, compiled=True)}
    if name == "bf16":
        contestants["eager"] = hugging_face(model, row.shape, tokens, compiled=False)
        contestants[row.peer] = openvino(model, row.shape)
    elif not row.peer:
        contestants["memory"] = reading()
    else:
        file = Path(folder) / f"{name}.gguf"
        write_llama(file, model.config, row.peer.split()[1], _SEED)
        contestants[row.peer] = llama(file, row.shape, tokens)
    found = measured(contestants, tokens, rounds)
    own, error = found["kernelmill"], f"{error_of(model, row.shape):.1e}"
    others = ", ".join(f"{who} {rate:.1f}" for who, rate in found.items() if who != "kernelmill")
    if not row.peer:
        rate = found["memory"] * READ
        share, beside = bytes_of_weights(model) * own / rate, f"memory at {rate / 1e9:.1f} GB/s"
        return [name, f"{own:.1f}", beside, f"{share:.0%}", f"{row.goal:.0%}", error]
    return [name, f"{own:.1f}", others, f"{own / found[row.peer]:.2f}", f"{row.goal:.1f}", error]


def main() -> None:
    """Parse the command line, measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.tokens")
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE}")
    parser.add_argument("--small", action="store_true", help="two layers: whether it runs")
    options = parser.parse_args()
    if options.write and (options.small or options.rows != list(ROWS)):
        parser.error("--write is for all rows of the real shapes")
    lines: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.rows:
            row = ROWS[name]
            if options.small:
                row = replace(row, shape=replace(row.shape, **SMALL))
            lines.append(measure(name, row, options.tokens, options.rounds, folder))
    header = ["row", "kernelmill, tokens a second", "beside", "ratio", "goal", "error"]
    text = f"{description()} Weights are random.\n\n{table(header, lines)}"
    print(text)
    if options.write:
        publish(PAGE, f"# Performance of text generation\n\n{text}")


if __name__ == "__main__":
    main()
