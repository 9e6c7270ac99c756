"""What it costs that a size is not known: programs of symbolic sizes against static ones.

python -m tools.bench.dynamic [NAME...]     writes docs/performance-dynamic.md

A model is traced once with its size unknown. The dynamic program is that graph compiled; the static
ones are the same graph with the size put in. Both are called directly, without Dynamo's guards,
whose cost would hide a part of the difference.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.backend.capture import Traced, compile_capture
from kernelmill.compiler.pipeline import Compiler, compile_graph
from kernelmill.graph.ir import Graph, Input
from kernelmill.graph.sizes import at_sizes
from tests import zoo
from tools.bench.by_machine import publish
from tools.bench.report import duration, table
from tools.machine import description

RESULT = Path("docs/performance-dynamic.md")
SIZES = (1, 2, 3, 4, 7, 8, 16, 33, 64, 128, 512)
WIDTHS = (64, 512, 768, 3072)
TURNS = 15
TURN_SECONDS = 0.002
PAUSE_SECONDS = 0.001

Call = Callable[[], object]
Arguments = Callable[[int], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Subject:
    """A function, its arguments for a size, and which of their dims are that size.

    Without `one` the size 1 is left out: torch cannot trace the function unless it is at least 2.
    """

    name: str
    function: Callable[..., Any]
    arguments: Arguments
    dims: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...] = SIZES
    one: bool = True


@dataclass(frozen=True)
class Standing:
    """Seconds of a call of the dynamic and of the static program, by size."""

    name: str
    seconds: dict[int, tuple[float, float]]

    @property
    def ratios(self) -> dict[int, float]:
        """Dynamic over static."""
        return {size: dynamic / static for size, (dynamic, static) in self.seconds.items()}


def linear(k: int, n: int) -> Subject:
    model = nn.Linear(k, n).eval().requires_grad_(False)
    return Subject(f"linear {k} to {n}", model, lambda m: (torch.randn(m, k),), ((0,),))


def _mlp(width: int) -> Subject:
    model = nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.LayerNorm(width)
    )
    model = model.eval().requires_grad_(False)
    return Subject(f"MLP {width}", model, lambda m: (torch.randn(m, width),), ((0,),))


def _heads(length: int, heads: int = 12) -> Tensor:
    return torch.randn(1, heads, length, 64)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v)


def _attend_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attend_grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def _attend_plainly(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def attentions() -> list[Subject]:
    every: Arguments = lambda n: (_heads(n), _heads(n), _heads(n))  # noqa: E731
    few: Arguments = lambda n: (_heads(n), _heads(256), _heads(256))  # noqa: E731
    one: Arguments = lambda n: (_heads(1), _heads(n), _heads(n))  # noqa: E731
    grouped: Arguments = lambda n: (_heads(n), _heads(256, 3), _heads(256, 3))  # noqa: E731
    all_three, rows, keys = ((2,), (2,), (2,)), ((2,), (), ()), ((), (2,), (2,))
    return [
        Subject("attention, tokens", _attend, every, all_three, SIZES[1:], False),
        Subject("attention, tokens, causal", _attend_causal, every, all_three, SIZES[1:], False),
        Subject("attention, 256 keys", _attend, few, rows, SIZES[1:], False),
        Subject(
            "attention, 256 keys, 4 heads a group", _attend_grouped, grouped, rows, SIZES[1:], False
        ),
        Subject("attention, one query row, keys", _attend, one, keys, SIZES[1:], False),
        Subject("matmul, softmax, matmul, tokens", _attend_plainly, every, all_three),
        Subject("matmul, softmax, matmul, one row, keys", _attend_plainly, one, keys),
    ]


def contractions() -> list[Subject]:
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def along(a: Tensor, b: Tensor) -> Tensor:
        return a @ b.T

    random = torch.randn
    return [
        Subject("m x 512 times 512 x 512", product,
                lambda m: (random(m, 512), random(512, 512)), ((0,), ())),
        Subject("m x 512 times transposed", along,
                lambda m: (random(m, 512), random(512, 512)), ((0,), ())),
        Subject("64 x 512 times 512 x n", product,
                lambda n: (random(64, 512), random(512, n)), ((), (1,))),
        Subject("64 x k times k x 512", product,
                lambda k: (random(64, k), random(k, 512)), ((1,), (0,))),
        Subject("1 x k times k x 512", product,
                lambda k: (random(1, k), random(k, 512)), ((1,), (0,))),
        Subject("batch of 1 x 256 times 256 x 256", product,
                lambda b: (random(b, 1, 256), random(b, 256, 256)), ((0,), (0,))),
        Subject("batch of 64 x 64 times 64 x 64", product,
                lambda b: (random(b, 64, 64), random(b, 64, 64)), ((0,), (0,))),
    ]  # fmt: skip


def _conv(name: str, model: nn.Module, *shape: int) -> Subject:
    model = model.eval().requires_grad_(False)
    return Subject(name, model, lambda b: (torch.randn(b, *shape),), ((0,),), (1, 2, 3, 4, 8, 16))


def convolutions() -> list[Subject]:
    return [
        _conv("conv 3x3, batch", nn.Conv2d(64, 64, 3, padding=1), 64, 14, 14),
        _conv("conv 3x3 of 7x7, batch", nn.Conv2d(128, 128, 3, padding=1), 128, 7, 7),
        _conv("conv 1x1, batch", nn.Conv2d(128, 256, 1), 128, 14, 14),
        _conv("depthwise, batch", nn.Conv2d(64, 64, 3, padding=1, groups=64), 64, 28, 28),
    ]


def others() -> list[Subject]:
    norm = nn.LayerNorm(768).requires_grad_(False)
    row: Arguments = lambda m: (torch.randn(m, 768),)  # noqa: E731
    wide: Arguments = lambda m: (torch.randn(64, m),)  # noqa: E731

    def turned(x: Tensor) -> Tensor:
        return (x.t() + 1).contiguous()

    return [
        Subject("layer norm, rows", norm, row, ((0,),)),
        Subject("GELU, rows", nn.functional.gelu, row, ((0,),)),
        Subject("softmax, columns", lambda x: torch.softmax(x, -1), wide, ((1,),)),
        Subject("sum, columns", lambda x: x.sum(-1), wide, ((1,),)),
        Subject("sum over rows", lambda x: x.sum(0), row, ((0,),)),
        Subject("mean of all", lambda x: x.mean(), row, ((0,),)),
        Subject("transposed, rows", turned, row, ((0,),)),
        Subject("x * x + 1, columns", lambda x: x * x + 1, wide, ((1,),)),
    ]


def models() -> list[Subject]:
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=2)
    bert = transformers.BertModel(config).eval().requires_grad_(False)

    def run(tokens: Tensor) -> Tensor:
        return bert(tokens)[0]

    def tokens(*shape: int) -> tuple[Tensor, ...]:
        return (torch.randint(0, 30_000, shape),)

    block = zoo.mlp(8).model.requires_grad_(False)
    return [
        Subject("small MLP of 8 blocks", block, lambda m: (torch.randn(m, 64),), ((0,),)),
        Subject("BERT, 2 layers, tokens", run, lambda n: tokens(1, n), ((1,),), SIZES[1:], False),
        Subject("BERT, 2 layers, batch of 8 tokens", run, lambda b: tokens(b, 8), ((0,),),
                (1, 2, 3, 4, 7, 8, 16, 33, 64)),
    ]  # fmt: skip


def subjects() -> list[Subject]:
    """All that is measured."""
    lines = [linear(k, n) for k in WIDTHS for n in WIDTHS]
    return [
        *lines, _mlp(64), _mlp(768), *contractions(), *attentions(), *convolutions(), *others(),
        *models(),
    ]  # fmt: skip


class Programs:
    """The dynamic program of a subject, and its static ones."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.config = kernelmill.CompilerConfig()
        self.graphs: list[Graph] = []
        self.seen: tuple[Any, ...] = ()
        torch._dynamo.reset()
        self.compiled = torch.compile(self.subject.function, backend=self._backend, fullgraph=True)
        example = subject.arguments(5)
        for tensor, dims in zip(example, subject.dims, strict=True):
            for dim in dims:
                if subject.one:
                    torch._dynamo.decorators.mark_unbacked(tensor, dim, shape_id="size")
                else:
                    torch._dynamo.mark_dynamic(tensor, dim)
        self.compiled(*example)
        (self.graph,) = self.graphs
        self.dynamic = compile_graph(self.graph, self.config).program.call

    def _backend(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def observe(traced: Traced) -> None:
            self.graphs.append(traced.imported.graph)

        call = compile_capture(gm, inputs, Compiler(self.config), {}, lambda capture: None, observe)

        def run(*args: Any) -> Any:
            self.seen = args
            return call(*args)

        return run

    def calls(self, size: int) -> tuple[Call, Call]:
        """A call of the dynamic and one of the static program at this size, both compiled."""
        self.compiled(*self.subject.arguments(size))
        args = self.seen
        values = dict.fromkeys(self.graph.symbols, size)
        static = compile_graph(at_sizes(self.graph, values), self.config).program.call
        entries = zip(self.graph.inputs, args, strict=True)
        kept = tuple(arg for entry, arg in entries if isinstance(entry, Input))
        dynamic = self.dynamic
        torch.testing.assert_close(dynamic(*args), static(*kept), rtol=1e-3, atol=1e-3)
        return lambda: dynamic(*args), lambda: static(*kept)


def race(calls: Sequence[Call]) -> list[float]:
    """Seconds of a call, the median of turns one after the other."""
    repeats = [
        max(1, round(TURN_SECONDS / min(_turn(call, 1) for _ in range(3)))) for call in calls
    ]
    turns: list[list[float]] = [[] for _ in calls]
    for number in range(TURNS):
        places = range(len(calls)) if number % 2 else reversed(range(len(calls)))
        for i in places:
            time.sleep(PAUSE_SECONDS)
            turns[i].append(_turn(calls[i], repeats[i]))
    return [statistics.median(times) for times in turns]


def _turn(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def measure(subject: Subject) -> Standing:
    """All sizes of a subject; everything is compiled before anything is measured."""
    programs = Programs(subject)
    calls = {size: programs.calls(size) for size in subject.sizes}
    seconds: dict[int, tuple[float, float]] = {}
    for size, both in calls.items():
        dynamic, static = race(both)
        seconds[size] = dynamic, static
    return Standing(subject.name, seconds)


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def summary(standings: Sequence[Standing]) -> str:
    """Over all subjects: the mean and the worst of each size, and of all of them."""
    rows: list[tuple[str, ...]] = []
    for size in SIZES:
        found = [(s.ratios[size], s.name) for s in standings if size in s.ratios]
        if found:
            worst, name = max(found)
            mean = geometric_mean([ratio for ratio, _ in found])
            rows.append((str(size), f"{mean:.2f}", f"{worst:.2f}", name))
    every = [(ratio, s.name, size) for s in standings for size, ratio in s.ratios.items()]
    worst, name, size = max(every)
    mean = geometric_mean([ratio for ratio, _, _ in every])
    rows.append(("all", f"{mean:.2f}", f"{worst:.2f}", f"{name}, {size}"))
    return table(("size", "geometric mean", "worst", "of"), rows)


def details(standings: Sequence[Standing]) -> str:
    """Each subject at each size: the ratio, and the static program's time."""
    rows = [
        (
            standing.name,
            *(
                f"{standing.ratios[size]:.2f} ({duration(standing.seconds[size][1])})"
                if size in standing.seconds
                else "-"
                for size in SIZES
            ),
        )
        for standing in standings
    ]
    return table(("", *map(str, SIZES)), rows)


def main() -> None:
    """Measures, prints and writes the result; with names, what has one of them in its own."""
    names = sys.argv[1:]
    standings: list[Standing] = []
    with torch.no_grad():
        for subject in subjects():
            if names and not any(name in subject.name for name in names):
                continue
            standing = measure(subject)
            standings.append(standing)
            ratios = " ".join(f"{size}:{ratio:.2f}" for size, ratio in standing.ratios.items())
            print(f"{standing.name:42} {ratios}", flush=True)
    text = "\n\n".join(
        [
            "# Performance of dynamic programs",
            f"{description()}. `python -m tools.bench.dynamic` measures this: the time of a call "
            "of a program for all sizes, over that of a program compiled for the size. Both are "
            "called directly, without Dynamo's guards.",
            summary(standings),
            "In brackets the static program's time. Below a microsecond or two the difference is "
            "that of finding a call's sizes, not of the kernels.",
            details(standings),
        ]
    )
    print(text)
    if not names:
        publish(RESULT, text + "\n")


if __name__ == "__main__":
    main()
