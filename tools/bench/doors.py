"""What the ways to the compiler cost: calls, first answers of processes, flex attention, regions.

python -m tools.bench.doors              all rows
python -m tools.bench.doors regions      these

Prints a table. The two sides of a row take turns; the ratio is the median of those of the turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import kernelmill
from kernelmill.inference import finish_packing
from tests import zoo
from tools.bench.tables import duration, table
from tools.machine import description

Measure = Callable[[], float]
"""Seconds of one turn."""
_ANSWER = """
import sys, time
import torch, kernelmill
from transformers import BertConfig, BertModel
torch.manual_seed(0)
model, ids = BertModel(BertConfig()).eval(), torch.randint(1000, 20000, (1, 8))
start, before = time.perf_counter(), "torch._dynamo" in sys.modules
compiled = kernelmill.compile(model)
with torch.no_grad():
    compiled(input_ids=ids, attention_mask=torch.ones_like(ids))
print(time.perf_counter() - start, "torch._dynamo" in sys.modules and not before)
"""


@dataclass(frozen=True)
class Row:
    """What is measured on both sides, in so many turns. `goal` is for the first side, in seconds,
    or for what it is of the second."""

    title: str
    first: Measure
    second: Measure
    goal: str
    turns: int = 15


def _lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10),
    ).eval()  # fmt: skip


def _calls(function: Callable[..., Any], *args: Any, count: int = 200) -> Measure:
    """Of a call, warmed up."""
    for _ in range(3):
        function(*args)
        finish_packing()

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(count):
            function(*args)
        return (time.perf_counter() - start) / count

    return measure


def _by_both(name: str, model: nn.Module, *args: Tensor) -> Row:
    ours = _calls(kernelmill.compile(model, cache_dir=tempfile.mkdtemp()), *args)
    theirs = _calls(torch.compile(model, backend="kernelmill"), *args)
    return Row(f"a call of {name}: `kernelmill.compile`, torch.compile", ours, theirs, "0.5")


def _mlp() -> Row:
    case = zoo.mlp()
    return _by_both("the MLP of 8 blocks", case.model, *case.args)


def _first_answers() -> Row:
    kept = tempfile.mkdtemp()

    def answer(folder: str) -> float:
        names = ("KERNELMILL_CACHE_HOME", "KERNELMILL_KERNEL_META")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _ANSWER], capture_output=True, text=True,
            check=True, env={**os.environ, **dict.fromkeys(names, folder)},
        )  # fmt: skip
        seconds, dynamo = done.stdout.split()
        imports.setdefault(folder, []).append(dynamo)
        return float(seconds)

    def anew() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return answer(folder)

    imports: dict[str, list[str]] = {}
    answer(kept)
    answer(kept)
    assert imports[kept][1] == "False", "Dynamo is imported where programs are kept"
    title = "first answer of BERT-base 1 x 8: another process's programs, none"
    return Row(title, lambda: answer(kept), anew, "0.1 s", turns=2)


def _flex(title: str, mask: Callable[..., Any], goal: str) -> Row:
    """Heads (1, 8, 2048, 64)."""
    q, k, v = (torch.randn(1, 8, 2048, 64) for _ in range(3))
    blocks = create_block_mask(mask, None, None, 2048, 2048, device="cpu")
    flex = torch.compile(flex_attention, backend="kernelmill")
    causal = nn.functional.scaled_dot_product_attention
    expected = causal(q, k, v, attn_mask=mask(0, 0, *torch.meshgrid(*[torch.arange(2048)] * 2)))
    torch.testing.assert_close(flex(q, k, v, block_mask=blocks), expected)
    return Row(
        f"flex attention, {title}: ours, causal SDPA of torch",
        _calls(lambda: flex(q, k, v, block_mask=blocks), count=4),
        _calls(lambda: causal(q, k, v, is_causal=True), count=4), goal,
    )  # fmt: skip


class _Layer(nn.Module):
    """A layer of a decoder, `width` wide, with 4 heads."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 6 * width), nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * up)


def _regions() -> Row:
    """Of 32 layers; kernels are in the store."""

    def first_call(as_regions: bool) -> Measure:
        model, x = nn.Sequential(*(_Layer() for _ in range(32))).eval(), torch.randn(1, 16, 64)
        region = torch.compiler.nested_compile_region(_Layer.forward)
        for layer in model if as_regions else ():
            layer.forward = MethodType(region, layer)

        def measure() -> float:
            torch.compiler.reset()
            start = time.perf_counter()
            torch.compile(model, backend="kernelmill")(x)
            return time.perf_counter() - start

        measure()
        return measure

    title = "first call of 32 layers: nested regions, none"
    return Row(title, first_call(True), first_call(False), "0.2", turns=5)


ROWS: Mapping[str, Callable[[], Row]] = {
    "lenet": lambda: _by_both("LeNet", _lenet(), torch.randn(1, 1, 28, 28)),
    "mlp": _mlp,
    "bert": _first_answers,
    "causal": lambda: _flex("causal", lambda b, h, i, j: i >= j, "1.0"),
    "window": lambda: _flex("windows of 512", lambda b, h, i, j: (i >= j) & (i - j < 512), "0.5"),
    "regions": _regions,
}


def main() -> None:
    """Print the table."""
    print(f"{description()} Load {os.getloadavg()[0]:.1f} before.\n")
    lines: list[tuple[str, ...]] = []
    with torch.no_grad():
        for name in sys.argv[1:] or ROWS:
            row = ROWS[name]()
            pairs = [(row.first(), row.second()) for _ in range(row.turns)]
            ratio = statistics.median(first / second for first, second in pairs)
            sides = (duration(statistics.median(side)) for side in zip(*pairs, strict=True))
            lines.append((row.title, *sides, f"{ratio:.2f}", row.goal))
    print(table(("", "first", "second", "first over second", "goal"), lines))
    print(f"\nLoad {os.getloadavg()[0]:.1f} after.")


if __name__ == "__main__":
    main()
