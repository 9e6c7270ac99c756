"""What a token of a decoder with a growing cache takes outside of native code.

python -m tools.bench.growing [--layers N ...] [--lengths N ...] [--tokens N]

A decoder of the Llama type on cached methods (examples/cached_decoder.py) with a DynamicCache, one
thread, layers so small that they compute little. A token's keys and values come in new tensors, two
for each layer, that the call makes and puts into the cache: what torch takes for that, and to free
those of the token before, is in the figures.

Each token is timed as a whole, and so are its native entries: the difference is Python, torch and
the clock itself. Medians over so many tokens after a prompt of each length, at lengths that no call
had before, and then once more at the same lengths, whose sizes are known.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass

import torch
import transformers

from examples.cached_decoder import CachedDecoder
from tools.bench.cache_calls import Clock, clocked_entries
from tools.bench.tables import table
from tools.machine import description

HEADER = ["layers", "from length", "launches", "checks", "outside, new", "best", "outside, known"]

Clocks = tuple[Clock, Clock]
"""Of entries that launch, and of those that only look."""


@dataclass(frozen=True)
class Token:
    """Seconds of one: all of it, in entries that launch, in entries that check."""

    whole: float
    launches: float
    checks: float

    @property
    def outside(self) -> float:
        """Seconds in no native entry."""
        return self.whole - self.launches - self.checks


def decoder(layers: int, folder: str) -> CachedDecoder:
    """A small one, whose heads have 8 numbers."""
    torch.manual_seed(2)
    config = transformers.LlamaConfig(
        vocab_size=211, hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
        pad_token_id=0, max_position_embeddings=4096,
    )  # fmt: skip
    return CachedDecoder(config, folder, dynamic_cache=True).eval()


def tokens(model: CachedDecoder, length: int, count: int, clocks: Clocks) -> list[Token]:
    """So many after a prompt of this length, into a new cache."""
    cache, one = transformers.DynamicCache(config=model.config), torch.tensor([[5]])
    ids = torch.randint(1, 211, (1, length))
    places = [torch.tensor([[length + n]]) for n in range(count)]
    masks = [torch.ones(1, length + n + 1, dtype=torch.int64) for n in range(count)]
    model.prompt(ids, torch.ones_like(ids), torch.arange(length)[None], cache)
    found: list[Token] = []
    for place, mask in zip(places, masks, strict=True):
        before = [clock.seconds for clock in clocks]
        start = time.perf_counter()
        model.step(one, mask, place, cache)
        whole = time.perf_counter() - start
        launches, checks = (c.seconds - b for c, b in zip(clocks, before, strict=True))
        found.append(Token(whole, launches, checks))
    return found


def measure(layers: int, lengths: list[int], count: int, clocks: Clocks) -> list[list[str]]:
    """A row for each length."""
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model = decoder(layers, folder)
        tokens(model, max(lengths) + 2 * count, 2 * count, clocks)  # traced and warm
        for length in lengths:
            new, known = (tokens(model, length, count, clocks) for _ in range(2))
            figures = [
                statistics.median(token.launches for token in new),
                statistics.median(token.checks for token in new),
                statistics.median(token.outside for token in new),
                min(token.outside for token in new),
                statistics.median(token.outside for token in known),
            ]
            rows.append([str(layers), str(length), *[f"{each * 1e6:.0f}" for each in figures]])
        if model.step.statistics["traced"] != 1:
            raise AssertionError(f"traced anew: {model.step.statistics}")
    return rows


def main() -> None:
    """Parse the command line, measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.growing")
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 30])
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 300, 600])
    parser.add_argument("--tokens", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    clocks = clocked_entries()  # before any program is loaded
    rows = [
        row
        for layers in options.layers
        for row in measure(layers, options.lengths, options.tokens, clocks)
    ]
    print(f"{description()} Microseconds a token.\n\n{table(HEADER, rows)}")


if __name__ == "__main__":
    main()
