"""Hugging Face's `generate()` with a static cache, compiled: greedy and sampled tokens.

    python -m examples.generate
    python -m examples.generate --tokens 128 --hidden 1024 --layers 16

The weights are random, from a config: with a checkpoint, `from_pretrained` takes the place of
`make_model` and nothing else changes. The step that makes one token is one program of a fixed
shape, which writes the cache in place; prompts of several lengths share a second program. Prints
tokens a second of eager and compiled code, in turns, and whether their tokens are equal.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported

import torch
import transformers
from torch import Tensor

import kernelmill
from kernelmill.inference import finish_packing
from tools.machine import processor

PROMPT_LENGTHS = (24, 40)
_SEED = 11


def make_model(hidden: int, layers: int, vocabulary: int = 32000) -> Any:
    """A decoder of the Llama type in eval mode, with grouped-query attention."""
    torch.manual_seed(_SEED)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=hidden * 7 // 2,
        num_hidden_layers=layers, num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 256), max_position_embeddings=2048,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():  # as they come, random weights make every token nearly as likely
        model.lm_head.weight.normal_(0.0, 1.0)
    return model


def make_prompts(vocabulary: int, batch: int) -> list[Tensor]:
    """Token ids (batch, length) int64 for each of the lengths."""
    generator = torch.Generator().manual_seed(_SEED)
    return [
        torch.randint(1, vocabulary, (batch, length), generator=generator)
        for length in PROMPT_LENGTHS
    ]


@dataclass(frozen=True)
class Way:
    """How tokens are chosen: arguments of `generate`."""

    name: str
    options: dict[str, Any]


WAYS = (
    Way("greedy", {"do_sample": False}),
    Way("sampled", {"do_sample": True, "temperature": 0.8, "top_k": 50}),
)


def make_cache(model: Any, batch: int, tokens: int) -> Any:
    """Room for the keys and values of so many sequences and tokens, of one shape for all calls."""
    config = model.config
    cache = transformers.StaticCache(config, max_cache_len=max(PROMPT_LENGTHS) + tokens)
    cache.early_initialization(
        batch, config.num_key_value_heads, config.head_dim, model.dtype, model.device
    )
    return cache


def generate(model: Any, prompt: Tensor, cache: Any, way: Way, tokens: int) -> Tensor:
    """Prompt and new tokens (batch, length + tokens) int64, with the same random numbers each
    time."""
    cache.reset()
    torch.manual_seed(_SEED)
    with torch.no_grad():
        return model.generate(
            prompt, attention_mask=torch.ones_like(prompt), past_key_values=cache,
            max_new_tokens=tokens, disable_compile=True, **way.options,
        )  # fmt: skip


def compiled(model: Any) -> Callable[..., Any]:
    """The model's `forward`, to be put in its place."""
    return kernelmill.compile(model.forward)


def rates(model: Any, forwards: dict[str, Callable[..., Any]], way: Way, tokens: int, rounds: int,
          prompts: list[Tensor]) -> tuple[dict[str, float], bool]:  # fmt: skip
    """Tokens a second of each forward (median of the rounds, in turns), and whether all made the
    same tokens. The first round warms up and compiles."""
    times: dict[str, list[float]] = {name: [] for name in forwards}
    cache, equal = make_cache(model, len(prompts[0]), tokens), True
    for turn in range(rounds + 1):
        for prompt in prompts:
            made: list[Tensor] = []
            for name, forward in forwards.items():
                model.forward = forward
                start = time.perf_counter()
                made.append(generate(model, prompt, cache, way, tokens))
                spent = time.perf_counter() - start
                if turn:
                    times[name].append(tokens * len(prompt) / spent)
            equal = equal and all(torch.equal(each, made[0]) for each in made)
        finish_packing()
    return {name: statistics.median(each) for name, each in times.items()}, equal


def main() -> None:
    """Parse the command line, run, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m examples.generate")
    for name, default in (
        ("hidden", 512), ("layers", 8), ("tokens", 64), ("batch", 1), ("rounds", 5)
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    model = make_model(options.hidden, options.layers)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{count / 1e6:.0f} million parameters, batch {options.batch}, {options.tokens} tokens, "
        f"{options.rounds} rounds; {datetime.date.today()}, {processor()}, "
        f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}, torch "
        f"{torch.__version__}, transformers {transformers.__version__}"
    )
    prompts = make_prompts(model.config.vocab_size, options.batch)
    forwards = {"eager": model.forward, "compiled": compiled(model)}
    print(
        "| tokens | eager, a second | compiled, a second | ratio | equal |\n|---|---|---|---|---|"
    )
    for way in WAYS:
        found, equal = rates(model, forwards, way, options.tokens, options.rounds, prompts)
        ratio = found["compiled"] / found["eager"]
        print(
            f"| {way.name} | {found['eager']:.1f} | {found['compiled']:.1f} | {ratio:.2f} | "
            f"{'yes' if equal else 'no'} |"
        )


if __name__ == "__main__":
    main()
