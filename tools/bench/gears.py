"""What gears cost and save."""

from __future__ import annotations

import copy
import random
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tools.bench.harness import Page, Rows, Table, child, duration, medians, race, spent
from tools.bench.peers import FirstResult

MODULE = "tools.bench.gears"
BATCHES = tuple(range(2, 18))
LENGTH = 8
"""Tokens a row: the measure is of compiling and choosing, and thousands of calls have to end."""

PADDED_LENGTHS = (16, 32, 48, 64, 96, 128)
ROWS, BATCHES_OF_TEXT = 4, 24
ROUNDS = 3
"""Processes that compile BERT-base in each of the two ways whose ratio is the goal, in turns."""

_STAGES = ("passes", "lower", "verify", "codegen", "link")


def _bert(batch: int) -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig()).eval().requires_grad_(False)
    return model, torch.randint(0, 30_000, (batch, LENGTH))


def first_call(how: str, batches: Sequence[int]) -> dict[str, float]:
    """Return seconds until BERT-base has been called with each of these batches, and how it was
    traced.

    `how`: "gears", "static" (one trace a shape) or "dynamic" (mark_dynamic), of kernelmill; the
    last two with "inductor " before them.
    """
    from torch._dynamo.utils import counters

    from kernelmill.backend.entry import Backend
    from kernelmill.compiler.linking import Compiled
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

    def every_batch() -> None:
        compiled(tokens)
        for batch in batches[1:]:
            compiled(tokens[:1].repeat(batch, 1))

    with torch.no_grad():
        found = {"seconds": spent(every_batch)}
    found["traces"] = float(counters["stats"]["unique_graphs"])
    if inductor:
        return found
    reports = [each.report for each in programs]
    found["compile"] = sum(c.import_seconds + c.compile_seconds for c in backend.captures)
    made = {k.name for report in reports for k in report.kernels if k.source == "compiled"}
    found["kernels"] = float(len(made))
    for stage in _STAGES:
        found[stage] = sum(report.seconds.get(stage, 0.0) for report in reports)
    return found


def _fresh(how: str, batches: Sequence[int] = BATCHES) -> dict[str, float]:
    return child(f"first_call({how!r}, {list(batches)})", MODULE)


_found: dict[str, dict[str, float]] = {}
"""What the tables of first calls are of, by way."""


def _first_calls() -> Rows:
    one, gears = zip(*((_fresh("static", BATCHES[:1]), _fresh("gears")) for _ in range(ROUNDS)))  # noqa: B905
    count = f"{len(BATCHES)} batch sizes"
    _found.update({
        "kernelmill static, 1 batch size": medians(one),
        f"kernelmill gears, {count}": medians(gears),
        f"kernelmill dynamic, {count}": _fresh("dynamic"),
        "inductor static, 1 batch size": _fresh("inductor static", BATCHES[:1]),
        f"inductor dynamic, {count}": _fresh("inductor dynamic"),
        f"inductor static, {count}": _fresh("inductor static"),
    })  # fmt: skip
    for name, found in _found.items():
        spans = [duration(found.get(span)) for span in ("seconds", "compile")]
        yield name, f"{found['traces']:.0f}", *spans


def _profiles() -> Rows:
    for name, found in _found.items():
        if "compile" in found:
            stages = [duration(found[stage]) for stage in _STAGES]
            outside = duration(found["seconds"] - found["compile"])
            yield [name, f"{found['kernels']:.0f}", outside, *stages]


def _ratios() -> Rows:
    one, gears = list(_found.values())[:2]
    for what, name, goal in (("compile stage", "compile", "2"), ("all", "seconds", "1.5")):
        yield what, f"{gears[name] / one[name]:.2f}", goal


def _choice() -> Rows:
    from kernelmill import get_backend
    from kernelmill.inference import set_dim_gears

    def made(count: int) -> Callable[[], object]:
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: x + 1, backend=get_backend(), fullgraph=True)
        x = torch.randn(2, 4)
        if count > 1:
            set_dim_gears(x, {0: list(range(2, 2 + count))})
        compiled(x)
        plain = torch.randn(2, 4)
        return lambda: compiled(plain)

    found = race({str(count): made(count) for count in (1, 2, 10, 100)}, 60, 5e-3)
    yield from ((name, duration(seconds)) for name, seconds in found.items())


def sentences() -> list[tuple[Any, Any]]:
    """Return batches of real sentences, put together to random lengths: token ids and masks."""
    import examples.demo as demo

    tokenizer, _ = demo.load()
    order = random.Random(1)
    texts = [
        [" ".join(order.sample(demo.SENTENCES, order.randint(1, 6))) for _ in range(ROWS)]
        for _ in range(BATCHES_OF_TEXT)
    ]
    batches = [demo.encode(tokenizer, text) for text in texts]
    return [(ids, mask) for ids, mask in batches if ids.shape[1] <= PADDED_LENGTHS[-1]]


def _padding() -> Rows:
    """By the way of serving them, and the largest error against eager, over kept tokens."""
    import examples.demo as demo
    from kernelmill import CompilerConfig, get_backend
    from kernelmill.inference import set_dim_gears

    _, model = demo.load()
    batches = sentences()
    config = CompilerConfig()
    config.inference_config.gear_miss = "pad"
    config.inference_config.gear_pad_masks = ["attention_mask"]

    def compiled(backend: Any, **options: Any) -> Callable[..., Any]:
        made = torch.compile(copy.deepcopy(model), backend=backend, **options)
        return lambda ids, mask: made(input_ids=ids, attention_mask=mask)[0]

    def longest(ids: Any, mask: Any) -> Any:
        more = (0, PADDED_LENGTHS[-1] - ids.shape[1])
        pad = torch.nn.functional.pad
        return fixed(pad(ids, more), pad(mask, more))[:, : ids.shape[1]]

    fixed = compiled(get_backend(), dynamic=False)
    with tempfile.TemporaryDirectory() as folder:
        file, method = _without_dynamo(model, folder, *batches[0])
        ways = {
            "eager": lambda ids, mask: model(input_ids=ids, attention_mask=mask)[0],
            "Inductor, dynamic": compiled("inductor", dynamic=True),
            "kernelmill, dynamic": compiled(get_backend(), dynamic=True),
            "kernelmill, dynamic, ahead of time": file,
            "kernelmill, dynamic, a cached method": method,
            "kernelmill, all padded to the longest": longest,
            'kernelmill, gears with gear_miss="pad"': compiled(
                get_backend(compiler_config=config), fullgraph=True
            ),
        }
        first = [tensor.clone() for tensor in batches[0]]
        for tensor in first:
            set_dim_gears(tensor, {1: list(PADDED_LENGTHS)})
        ways['kernelmill, gears with gear_miss="pad"'](*first)
        errors = {
            name: max(
                (way(i, m) - ways["eager"](i, m))[m.bool()].abs().max().item() for i, m in batches
            )
            for name, way in ways.items()
        }
        found = race(
            {name: lambda way=way: [way(*b) for b in batches] for name, way in ways.items()}, 5
        )
    for name, seconds in found.items():
        rate, times = len(batches) * ROWS / seconds, found["Inductor, dynamic"] / seconds
        yield name, f"{rate:.1f}", f"{times:.2f}", f"{errors[name]:.1e}"


def _without_dynamo(model: Any, folder: str, ids: Any, mask: Any) -> tuple[Any, Any]:
    """Return the model for all lengths as a file and as a cached method."""
    from kernelmill import aot
    from kernelmill.inference import cache_compile

    hidden, length = FirstResult(model), {1: torch.export.Dim("length", min=2, max=512)}
    path, sizes = f"{folder}/model.kmill", {"args": (length, length)}
    file = aot.load(aot.compile(hidden, (ids, mask), path=path, dynamic_shapes=sizes))
    return file, cache_compile(hidden.forward, dynamic=True, cache_dir=f"{folder}/cache")


_HEAD = ("", "kernels compiled", "trace and first calls", *_STAGES)
PAGE = Page("gears", "docs/performance-gears.md", "Performance of gears", [
    Table("BERT-base, 16 batch sizes of 8 tokens, fresh process, empty store",
          ("", "traces", "until all were called", "compile stage"),
          {"first": _first_calls}),
    Table("Stages of these", _HEAD, {"stages": _profiles}),
    Table("16 gears against one shape", ("", "ratio", "goal, at most"),
          {"ratios": _ratios}),
    Table("The choice of a gear", ("gears", "a call of x + 1"), {"choice": _choice}),
    Table("MiniLM on real sentences of random lengths",
          ("", "sentences a second", "times Inductor", "largest error"),
          {"padding": _padding}),
])  # fmt: skip
