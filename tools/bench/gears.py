"""What gears cost and save.

python -m tools.bench.gears             writes docs/performance-gears.md
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.bench.by_machine import publish
from tools.bench.bytecode import have_bytecode
from tools.bench.child import child
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/performance-gears.md")
BATCHES = tuple(range(2, 18))
LENGTH = 8
"""Tokens a row: the measure is of compiling and choosing, and thousands of calls have to end."""

MIXED_CALLS = 2_000
PADDED_LENGTHS = (16, 32, 48, 64, 96, 128)
ROWS, BATCHES_OF_TEXT = 4, 24


def _bert(batch: int) -> tuple[Any, Any]:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig()).eval().requires_grad_(False)
    return model, torch.randint(0, 30_000, (batch, LENGTH))


def first_call(how: str, batches: Sequence[int]) -> dict[str, float]:
    """Seconds until BERT-base has been called with each of these batches, and how it was traced.

    `how`: "gears", "static" (one trace a shape) or "dynamic" (mark_dynamic), of kernelmill; the
    last two with "inductor " before them.
    """
    import torch
    from torch._dynamo.utils import counters

    from kernelmill.backend.entry import Backend
    from kernelmill.compiler import Compiled
    from kernelmill.inference import set_dim_gears

    model, tokens = _bert(batches[0])
    inductor = how.startswith("inductor")
    programs: list[Compiled[Any]] = []
    backend: Any = "inductor" if inductor else Backend(on_compiled=programs.append)
    options: dict[str, Any] = {"dynamic": False} if how.endswith("static") else {}
    torch._dynamo.config.recompile_limit = 100
    compiled = torch.compile(model, backend=backend, fullgraph=True, **options)
    if how == "gears":
        set_dim_gears(tokens, {0: list(batches)})
    elif how.endswith("dynamic"):
        torch._dynamo.mark_dynamic(tokens, 0)
    start = time.perf_counter()
    with torch.no_grad():
        compiled(tokens)
        for batch in batches[1:]:
            compiled(tokens[:1].repeat(batch, 1))
    spent = time.perf_counter() - start
    reports = [each.report for each in programs]
    found = {"seconds": spent, "traces": float(counters["stats"]["unique_graphs"])}
    if not inductor:
        found["compile"] = sum(c.import_seconds + c.compile_seconds for c in backend.captures)
        made = {k.name for report in reports for k in report.kernels if k.source == "compiled"}
        found["kernels"] = float(len(made))
    for report in reports:
        for stage, seconds in report.seconds.items():
            found[f"stage {stage}"] = found.get(f"stage {stage}", 0.0) + seconds
    return found


def mixed_calls(count: int) -> dict[str, float]:
    """Traces and wrong results after so many calls of BERT-base in random gears, and how long a
    call takes there, as a part of what it takes in a program compiled for that batch alone."""
    import torch
    from torch._dynamo.utils import counters

    from kernelmill import get_backend
    from kernelmill.inference import set_dim_gears

    model, tokens = _bert(BATCHES[0])
    geared = torch.compile(model, backend=get_backend(), fullgraph=True)
    set_dim_gears(tokens, {0: list(BATCHES)})
    inputs = {batch: torch.randint(0, 30_000, (batch, LENGTH)) for batch in BATCHES}
    with torch.no_grad():
        geared(tokens)
        expected = {batch: model(ids)[0] for batch, ids in inputs.items()}
        wrong = 0
        order = random.Random(0)
        for _ in range(count):
            batch = order.choice(BATCHES)
            difference = (geared(inputs[batch])[0] - expected[batch]).abs().max().item()
            wrong += difference > 1e-3
        traces = counters["stats"]["unique_graphs"]
        ratios = [_against_static(model, geared, inputs[batch]) for batch in (2, 8, 17)]
    return {"traces": float(traces), "wrong": float(wrong), "ratio": max(ratios)}


def _against_static(model: Any, geared: Any, tokens: Any) -> float:
    import torch

    from kernelmill import get_backend

    alone = torch.compile(model, backend=get_backend(), dynamic=False)
    times = in_turns({"geared": lambda: geared(tokens), "alone": lambda: alone(tokens)}, 40)
    return times["geared"] / times["alone"]


def in_turns(calls: dict[str, Callable[[], object]], turns: int, each: int = 1) -> dict[str, float]:
    """Median seconds of a call; the calls take turns."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(turns):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(each):
                call()
            spent[name].append((time.perf_counter() - start) / each)
    return {name: statistics.median(times) for name, times in spent.items()}


def dispatch() -> dict[str, float]:
    """Seconds of a call of a tiny function with 2, 10 and 100 gears, and with one static shape."""
    import torch

    from kernelmill import get_backend
    from kernelmill.inference import set_dim_gears

    calls: dict[str, Callable[[], object]] = {}

    def made(count: int) -> Callable[[], object]:
        def function(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        compiled = torch.compile(function, backend=get_backend(), fullgraph=True)
        x = torch.randn(2, 4)
        if count > 1:
            set_dim_gears(x, {0: list(range(2, 2 + count))})
        compiled(x)
        plain = torch.randn(2, 4)
        return lambda: compiled(plain)

    with torch.no_grad():
        for count in (1, 2, 10, 100):
            torch._dynamo.reset()
            calls[str(count)] = made(count)
        return in_turns(calls, 60, 500)


def sentences() -> list[tuple[Any, Any]]:
    """Batches of real sentences, put together to random lengths: token ids and masks."""
    import examples.demo as demo

    tokenizer, _ = demo.load()
    order = random.Random(1)
    texts = [
        [" ".join(order.sample(demo.SENTENCES, order.randint(1, 6))) for _ in range(ROWS)]
        for _ in range(BATCHES_OF_TEXT)
    ]
    return [demo.encode(tokenizer, text) for text in texts]


def padding() -> dict[str, float]:
    """Sentences a second of MiniLM over batches of random lengths, by the way of serving them, and
    the largest error of `pad` against eager."""
    import copy

    import torch

    import examples.demo as demo
    from kernelmill import CompilerConfig, get_backend
    from kernelmill.inference import set_dim_gears

    _, model = demo.load()
    batches = [(i, m) for i, m in sentences() if i.shape[1] <= PADDED_LENGTHS[-1]]
    config = CompilerConfig()
    config.inference_config.gear_miss = "pad"
    config.inference_config.gear_pad_masks = ["attention_mask"]
    padded = torch.compile(
        copy.deepcopy(model), backend=get_backend(compiler_config=config), fullgraph=True
    )
    inductor = torch.compile(copy.deepcopy(model), dynamic=True)
    ours = torch.compile(copy.deepcopy(model), backend=get_backend(), dynamic=True)
    longest = torch.compile(copy.deepcopy(model), backend=get_backend(), dynamic=False)

    def run(call: Callable[..., Any], ids: Any, mask: Any) -> Any:
        return call(input_ids=ids, attention_mask=mask)[0]

    def to_longest(ids: Any, mask: Any) -> tuple[Any, Any]:
        more = (0, PADDED_LENGTHS[-1] - ids.shape[1])
        return torch.nn.functional.pad(ids, more), torch.nn.functional.pad(mask, more)

    with torch.no_grad():
        ids, mask = (tensor.clone() for tensor in batches[0])
        for tensor in (ids, mask):
            set_dim_gears(tensor, {1: list(PADDED_LENGTHS)})
        run(padded, ids, mask)
        error = max(
            (run(padded, i, m) - run(model, i, m))[m.bool()].abs().max().item() for i, m in batches
        )
        times = in_turns(
            {
                "eager": lambda: [run(model, *b) for b in batches],
                "Inductor, dynamic": lambda: [run(inductor, *b) for b in batches],
                "kernelmill, dynamic": lambda: [run(ours, *b) for b in batches],
                **{
                    f"kernelmill, dynamic, {way}": lambda call=call: [call(*b) for b in batches]
                    for way, call in _without_dynamo(model, *batches[0]).items()
                },
                "kernelmill, all padded to the longest": lambda: [
                    run(longest, *to_longest(*b)) for b in batches
                ],
                'kernelmill, gears with gear_miss="pad"': lambda: [
                    run(padded, *b) for b in batches
                ],
            },
            5,
        )
    rates = {name: len(batches) * ROWS / seconds for name, seconds in times.items()}
    return {**rates, "error": error}


def _without_dynamo(model: Any, ids: Any, mask: Any) -> dict[str, Callable[..., Any]]:
    """The model for all lengths as a file and as a cached method: called without Dynamo."""
    import torch

    from kernelmill import aot
    from kernelmill.inference import cache_compile

    class Hidden(torch.nn.Module):
        """`(ids, mask) -> hidden states`: of the model's results the one that is used."""

        def __init__(self, folder: str) -> None:
            super().__init__()
            self.model = model
            self.cached = cache_compile(self.forward, dynamic=True, cache_dir=folder)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, attention_mask=mask)[0]

    length = torch.export.Dim("length", min=2, max=512)
    with tempfile.TemporaryDirectory() as folder:
        hidden = Hidden(f"{folder}/cache").eval()
        path = aot.compile(
            hidden, (ids, mask), path=f"{folder}/model.kmill",
            dynamic_shapes={"ids": {1: length}, "mask": {1: length}},
        )  # fmt: skip
        hidden.cached(ids, mask)
        return {"ahead of time": aot.load(path), "a cached method": hidden.cached}


_STAGES = ("passes", "lower", "verify", "codegen", "link")


def _profile(found: dict[str, float]) -> list[str]:
    """Kernels compiled, the time outside of the compile stage, and the stages."""
    outside = duration(found["seconds"] - found["compile"])
    stages = [duration(found.get(f"stage {stage}", 0.0)) for stage in _STAGES]
    return [f"{found['kernels']:.0f}", outside, *stages]


_WHY = (
    "Goal: 16 gears in twice the compile stage of one shape, and in 1.5 times its time in all. "
    "Gears for which the cost model says that the kernels of the program for all sizes take less "
    "than 3 % longer share these kernels: passes, fusion, kernels and LLVM's work on them are done "
    "once, and each gear has a plan of its own. Here these are all gears. What stands against "
    "the goal in all: a trace with a symbolic size takes longer than a static one whatever the "
    "backend does (the second column), and every gear is called once."
)

_TIMES = 3
"""Processes that compile BERT-base in each of the two ways whose ratio is the goal, in turns."""


def against_one_shape(
    ways: Sequence[tuple[str, Sequence[int]]], times: int = _TIMES
) -> list[dict[str, float]]:
    """Seconds of each way in fresh processes with empty stores, in turns: medians by name."""
    found: list[list[dict[str, float]]] = [[] for _ in ways]
    for _ in range(times):
        for runs, (how, batches) in zip(found, ways, strict=True):
            runs.append(_fresh(f"first_call({how!r}, {list(batches)})"))
    return [{name: statistics.median(run[name] for run in runs) for name in runs[0]}
            for runs in found]  # fmt: skip


def _fresh(call: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return child(call, f"{folder}/kernel_meta", "tools.bench.gears")


def main() -> None:
    """Measures, prints and writes the result."""
    have_bytecode()
    compiles: list[tuple[str, str, str, str]] = []
    profiles: list[tuple[str, ...]] = []
    ways = (
        ("static", BATCHES[:1]),
        ("gears", BATCHES),
        ("dynamic", BATCHES),
        ("inductor static", BATCHES[:1]),
        ("inductor dynamic", BATCHES),
        ("inductor static", BATCHES),
    )
    measured = against_one_shape(ways[:2])
    ratios = {name: measured[1][name] / measured[0][name] for name in ("compile", "seconds")}
    goal = (
        f"{len(BATCHES)} gears against one shape, ratios of the medians of {_TIMES} processes each "
        f"in turns: compile stage {ratios['compile']:.2f}, all {ratios['seconds']:.2f}."
    )
    print(goal, flush=True)
    measured += [_fresh(f"first_call({how!r}, {list(batches)})") for how, batches in ways[2:]]
    for (how, batches), found in zip(ways, measured, strict=True):
        own = duration(found["compile"]) if "compile" in found else "-"
        name = f"{'' if 'inductor' in how else 'kernelmill '}{how}, {len(batches)} batch sizes"
        compiles.append((name, f"{found['traces']:.0f}", duration(found["seconds"]), own))
        print(compiles[-1], flush=True)
        if "inductor" not in how:
            profiles.append((name, *_profile(found)))
    mixed = _fresh(f"mixed_calls({MIXED_CALLS})")
    print(mixed, flush=True)
    calls = _fresh("dispatch()")
    rates = _fresh("padding()")
    error = rates.pop("error")
    text = "\n\n".join(
        [
            "# Performance of gears",
            f"`python -m tools.bench.gears`, {description()}",
            f"## BERT-base, {len(BATCHES)} batch sizes of {LENGTH} tokens, fresh process, empty "
            "store",
            table(("", "traces", "until all were called", "compile stage"), compiles),
            table(("", "kernels compiled", "trace and first calls", *_STAGES), profiles),
            goal,
            _WHY,
            f"{MIXED_CALLS:,} mixed calls: {mixed['traces']:.0f} trace, {mixed['wrong']:.0f} wrong "
            f"results. The slowest gear takes {mixed['ratio']:.3f} of the time of a program that "
            "was compiled with `dynamic=False` for that batch.",
            "## The choice of a gear",
            table(
                ("gears", "a call of x + 1"),
                [(name, duration(seconds)) for name, seconds in calls.items()],
            ),
            "## MiniLM on real sentences of random lengths",
            f"{ROWS} rows a batch. The largest error of padding against eager, over kept tokens, "
            f"is {error:.1e}.",
            table(
                ("", "sentences a second"), [(name, f"{rate:.0f}") for name, rate in rates.items()]
            ),
        ]
    )
    print(text)
    publish(RESULT, text + "\n")


if __name__ == "__main__":
    main()
