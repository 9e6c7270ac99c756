"""What is measured of the models: steady calls in turns, first calls, and the fixed cost of a call.

In steady calls the contestants take turns within one process. Of first calls every figure comes
from a fresh process, with empty caches or those of the first.
"""

from __future__ import annotations

import copy
import gc
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelmill import aot
from kernelmill.compiler.pipeline import compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.graph.text import parse_graph
from kernelmill.inference import cache_compile
from tools.bench.contestants import CONTESTANTS, FLOOR
from tools.bench.harness import Call, child, in_a_line, in_turns, spent
from tools.bench.limits import Limits, limits
from tools.bench.models import ROWS
from tools.bench.peers import first_tensor
from tools.bench.subject import Subject, operations, poison, refill, traffic

TURN_SECONDS = 0.02
FOUR = """graph four(%a: f32[4], %b: f32[4], %c: f32[4], %d: f32[4]) {
    %m = mul(%a, %b) : f32[4]
    %s = add(%m, %c) : f32[4]
    %t = sub(%s, %d) : f32[4]
    return %t
}"""


@dataclass(frozen=True)
class Error:
    """How far the first result is from float64's, relative to the largest element of that."""

    largest: float
    mean: float


@dataclass
class Standing:
    """The results of one model: seconds a call (median of the turns) and errors, by contestant.

    operations, bytes   of a call, at least
    kind                what its products are made of
    copies              whether a call is one reading and one writing of its memory
    """

    model: str
    shape: str
    kind: str
    operations: int
    bytes: int
    copies: bool
    limits: Limits
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    errors: dict[str, Error] = field(default_factory=dict[str, Error])
    refused: dict[str, str] = field(default_factory=dict[str, str])


def race(subject: Subject, names: Sequence[str], budget: float) -> Standing:
    """Measure every named contestant on one model, in about `budget` seconds altogether."""
    torch._dynamo.reset()
    moved = traffic(subject)
    copied = moved // 2 if subject.copies else 0
    standing = Standing(
        subject.name, subject.case.shape, subject.kind, operations(subject), moved,
        subject.copies, limits(copied),
    )  # fmt: skip
    with torch.no_grad(), subject.settings():
        calls = ready(subject, {name: CONTESTANTS[name] for name in names}, standing.refused)
        _judge(subject, calls, standing)
        standing.seconds = steady(calls, budget)
    standing.limits = standing.limits.best(limits(copied))
    return standing


def ready(
    subject: Subject, contestants: Mapping[str, Callable[[Subject], Call]],
    refused: dict[str, str], watch: Callable[[str, Callable[[], Call]], Call] | None = None,
) -> dict[str, Call]:  # fmt: skip
    """Return the contestants that compile; the others go to `refused` with their reason. `watch`,
    if given, is called with the name of each and with what makes its call, and does so."""
    calls: dict[str, Call] = {}
    for name, contestant in contestants.items():
        try:
            model = copy.deepcopy(subject.case.model)  # for those that change its weights
            make = partial(contestant, replace(subject, case=replace(subject.case, model=model)))
            calls[name] = make() if watch is None else watch(name, make)
        except Exception as reason:
            refused[name] = in_a_line(reason)
    return calls


def steady(calls: Mapping[str, Call], budget: float) -> dict[str, float]:
    """Return the median seconds of a call of each, in turns of `budget` seconds altogether."""
    gc.collect()
    gc.disable()
    turns = in_turns(calls, 10**6, TURN_SECONDS, budget)
    gc.enable()
    return {name: statistics.median(times) for name, times in turns.items()}


def _judge(subject: Subject, calls: dict[str, Call], standing: Standing) -> None:
    """Take errors on data that no contestant has seen, into memory that holds no result."""
    refill(subject.args)
    answer = first_tensor(in_float64(subject))
    scale = answer.abs().max().item() or 1.0
    for name, call in list(calls.items()):
        if name == FLOOR:
            continue
        poison(call())
        difference = (first_tensor(call()).double() - answer).abs() / scale
        error = Error(difference.max().item(), difference.mean().item())
        standing.errors[name] = error
        if not error.largest <= subject.wrong:
            standing.refused[name] = f"wrong result: {error}"
            del calls[name]


def in_float64(subject: Subject) -> Any:
    """Return the result of the model in float64."""
    model = copy.deepcopy(subject.case.model).double()
    args = [arg.double() if arg.is_floating_point() else arg for arg in subject.args]
    return model(*args)


# ---- first calls --------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstCalls:
    """Seconds of the first call, median of the runs; `warm` has an earlier process' caches. Capture
    is what "aot_eager" needs: Dynamo and AOTAutograd alone, the floor of any backend."""

    model: str
    capture: float
    cold: dict[str, float]
    warm: dict[str, float]


def first_call(model: str, backend: str) -> float:
    """Return seconds of the first call in this process."""
    subject = ROWS[model].build()
    with torch.no_grad(), subject.settings():
        compiled = torch.compile(subject.case.model, backend=backend, dynamic=False)
        return spent(lambda: compiled(*subject.args))


def first_calls(model: str, runs: int = 3) -> FirstCalls:
    """Measure capture, and each backend with empty caches and then with full ones. Inductor is
    measured once: it takes minutes."""
    found: dict[str, list[float]] = {}
    for run in range(runs):
        with tempfile.TemporaryDirectory(prefix="kernelmill-bench-") as folder:
            for backend in ("aot_eager", "kernelmill", "inductor")[: 2 if run else 3]:
                for state in ("cold", "warm")[: 1 if backend == "aot_eager" else 2]:
                    call = f"first_call({model!r}, {backend!r})"
                    seconds = child(call, "tools.bench.measure", f"{folder}/kernel_meta")
                    found.setdefault(f"{state} {backend}", []).append(seconds)
    seconds = {name: statistics.median(times) for name, times in found.items()}
    cold, warm = ({name: seconds[f"{state} {name}"] for name in ("kernelmill", "inductor")}
                  for state in ("cold", "warm"))  # fmt: skip
    return FirstCalls(model, seconds["cold aot_eager"], cold, warm)


# ---- the fixed cost of a call -------------------------------------------------------------------


@dataclass(frozen=True)
class FixedCost:
    """Seconds a call by way of calling, in the quickest of the turns: the others may have waited
    for the processor."""

    seconds: dict[str, float]


def four(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Compute next to nothing."""
    return a * b + c - d


class _Cached(torch.nn.Module):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.cached = cache_compile(self.run, dynamic=False, cache_dir=folder)

    def run(self, a: Any, b: Any, c: Any, d: Any) -> Any:
        return four(a, b, c, d)


def fixed_cost() -> FixedCost:
    """Measure sums and products of four floats, each way in turn."""
    two, arguments = [torch.ones(4) for _ in range(2)], [torch.ones(4) for _ in range(4)]

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    with tempfile.TemporaryDirectory() as folder:
        file = aot.load(aot.compile(four, tuple(arguments), path=Path(folder) / "four.kmill"))
        ways: dict[str, Callable[..., Any]] = {
            "eager": four,
            "torch.compile, inductor": torch.compile(four, backend="inductor"),
            "torch.compile, kernelmill": torch.compile(four, backend="kernelmill"),
            "kernelmill, the program's own entry": compile_graph(
                parse_graph(FOUR), CompilerConfig()
            ).program.call,
            "kernelmill, cached method": _Cached(folder).cached,
            "kernelmill, aot file": file,
        }
        calls = {f"{name}, four inputs": partial(way, *arguments) for name, way in ways.items()}
        calls = {"eager": partial(add, *two), **calls}
        for backend in ("inductor", "kernelmill"):
            calls[f"torch.compile, {backend}"] = partial(torch.compile(add, backend=backend), *two)
        for call in calls.values():
            call()
        with torch.no_grad():
            found = in_turns(calls, 100, 2e-3)
        with torch.enable_grad():
            name = "kernelmill, aot file, four inputs, gradients on"
            found |= in_turns({name: partial(file, *arguments)}, 100, 2e-3)
    return FixedCost({name: min(turns) for name, turns in found.items()})
