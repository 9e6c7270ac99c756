"""What later calls of a cached method cost: a small one, and a decoder's loop over tokens."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tools.bench.gears import in_turns

TOKENS = 256


class Small(nn.Module):
    """Four tensors of four floats, nested; two results, nested."""

    def forward(self, x: torch.Tensor, more: dict[str, Any]) -> dict[str, Any]:
        """Sums and products."""
        return self.run(x, more)

    def run(self, x: torch.Tensor, more: dict[str, Any]) -> dict[str, Any]:
        """The method that is cached."""
        first, second = more["c"]
        return {"sum": x + more["b"], "pair": (first * second,)}


def small_calls() -> dict[str, float]:
    """Seconds of a call of `Small` by each way, kernels included; they take turns. "kernels" is
    what those of kernelmill take alone."""
    from kernelmill.inference import cache_compile

    model = Small()
    x, b, c, d = (torch.randn(4) for _ in range(4))
    more = {"b": b, "c": [c, d]}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        program = torch.export.export(model, (x, more))
        package = str(Path(folder) / "small.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=package)
        cached = cache_compile(model.run, dynamic=False, cache_dir=folder)
        ways = {
            "kernelmill": cached,
            "torch.compile, Inductor": torch.compile(model, dynamic=False),
            "AOTInductor": torch._inductor.aoti_load_package(package),
            "eager": model.run,
        }
        calls = {name: _with(way, x, more) for name, way in ways.items()}
        return {**in_turns(calls, 15, 1000), "kernels": _kernels(cached, x, more)}


def _kernels(cached: Any, *values: Any) -> float:
    """Seconds of the launches of a call, without anything around them."""
    cached(*values)
    program = cached._bound[0].bound._fast_path._program
    # Launches write to the results of the last call: they are held meanwhile.
    _held = cached(*values)
    alone = in_turns({"": lambda: program.launch_again(1000)}, 15)[""]
    return alone / 1000


def _with(way: Callable[..., Any], x: torch.Tensor, more: dict[str, Any]) -> Callable[[], Any]:
    return lambda: way(x, more)


class Clock:
    """Adds up the time spent in native entries."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def clocked_entries() -> tuple[Clock, Clock]:
    """Clocks of the native entries of programs that are loaded from now on: of those that launch,
    and of those that only look. Programs that work long are launched by an entry of their own."""
    from kernelmill.runtime import executor as natives

    runs, looks, plain = Clock(), Clock(), natives.executor()
    pairs = {"call": runs, "launch": runs, "repeat": runs, "validate": looks}
    single = dict.fromkeys(("quick", "symbols", "guards_hold", "settings"), looks)
    timed: dict[str, Any] = {
        **{name: tuple(map(clock.around, getattr(plain, name))) for name, clock in pairs.items()},
        **{name: clock.around(getattr(plain, name)) for name, clock in single.items()},
    }
    wrapped = dataclasses.replace(plain, **timed)
    for module in _users_of(natives.executor):
        module.executor = lambda: wrapped
    return runs, looks


class Decoder(nn.Module):
    """A step of a language model with a cache of fixed size."""

    def __init__(self, model: Any, folder: str) -> None:
        super().__init__()
        from kernelmill.inference import cache_compile

        self.model = model
        self.cached = cache_compile(self.step, dynamic=False, cache_dir=folder)

    def step(self, token: torch.Tensor, position: torch.Tensor, cache: Any) -> torch.Tensor:
        """The logits after one token."""
        found = self.model(input_ids=token, position_ids=position, past_key_values=cache)
        return found.logits[:, -1]


def decoder_loop(folder: str) -> dict[str, float]:
    """Seconds of 256 steps of a 135M decoder with 30 layers, of all their native entries, and of
    those among these that only check ("checks"). The cached method is kept in `folder`.

    Every native entry is counted; the clock's own time counts as Python's.
    """
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    from kernelmill.inference import finish_packing

    # Before any program is loaded: each keeps the entries that it was loaded with.
    runs, checks = clocked_entries()
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.no_grad():
        torch.manual_seed(0)
        decoder = Decoder(LlamaForCausalLM(config).eval(), folder)
        cache = StaticCache(config=config, max_cache_len=TOKENS + 8)
        settle: Any = cache.early_initialization  # its annotations leave out what it takes
        settle(1, config.num_key_value_heads, 64, torch.float32, "cpu")
        token, position = torch.tensor([[1]]), torch.tensor([[0]])
        for _ in range(3):
            decoder.cached(token, position, cache)
            finish_packing()
        runs.seconds = checks.seconds = spent = 0.0
        for number in range(TOKENS):
            position = torch.tensor([[number]])
            start = time.perf_counter()
            logits = decoder.cached(token, position, cache)
            spent += time.perf_counter() - start
            token = logits.argmax(-1, keepdim=True)
        counts = decoder.cached.statistics
    native = {"native": runs.seconds + checks.seconds, "checks": checks.seconds}
    return {"steps": TOKENS, "seconds": spent, **native, **counts}


def _users_of(function: object) -> list[Any]:
    import sys

    modules = [m for name, m in sys.modules.items() if name.startswith("kernelmill.runtime")]
    return [module for module in modules if vars(module).get("executor") is function]
