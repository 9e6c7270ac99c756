"""The fixed cost of a call: two or four inputs, one output, next to no work."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelmill import aot
from kernelmill.compiler import compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.graph.parser import parse_graph
from kernelmill.inference import cache_compile

ADD = "graph add(%a: f32[4], %b: f32[4]) { %sum = add(%a, %b) : f32[4] return %sum }"
FOUR = """graph four(%a: f32[4], %b: f32[4], %c: f32[4], %d: f32[4]) {
    %m = mul(%a, %b) : f32[4]
    %s = add(%m, %c) : f32[4]
    %t = sub(%s, %d) : f32[4]
    return %t
}"""
CALLS, TURNS = 500, 100


@dataclass(frozen=True)
class FixedCost:
    """Seconds a call by way of calling, in the quickest of the turns: the others may have
    waited for the processor."""

    seconds: dict[str, float]


@dataclass(frozen=True)
class _Way:
    call: Callable[[], Any]
    gradients: bool = False


def _four(a: Any, b: Any, c: Any, d: Any) -> Any:
    return a * b + c - d


class _Cached(torch.nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.cached = cache_compile(self.run, dynamic=False, cache_dir=str(folder))

    def run(self, a: Any, b: Any, c: Any, d: Any) -> Any:
        return a * b + c - d


def fixed_cost() -> FixedCost:
    """Measures sums and products of four floats, each way in turn."""
    with tempfile.TemporaryDirectory() as folder:
        ways = {**_two_inputs(), **_four_inputs(Path(folder))}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(1 + TURNS):
            for name, way in ways.items():
                with torch.set_grad_enabled(way.gradients):
                    start = time.perf_counter()
                    for _ in range(CALLS if turn else 3):
                        way.call()
                    spent = time.perf_counter() - start
                if turn:
                    times[name].append(spent / CALLS)
    return FixedCost({name: min(turns) for name, turns in times.items()})


def _two_inputs() -> dict[str, _Way]:
    a, b = torch.ones(4), torch.ones(4)

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    ways = {"eager": _Way(partial(add, a, b))}
    for backend in ("inductor", "kernelmill"):
        compiled = torch.compile(add, backend=backend)
        ways[f"torch.compile, {backend}"] = _Way(partial(compiled, a, b))
    program = compile_graph(parse_graph(ADD), CompilerConfig()).program
    ways["kernelmill, the program's own entry"] = _Way(partial(program.call, a, b))
    return ways


def _four_inputs(folder: Path) -> dict[str, _Way]:
    arguments = [torch.ones(4) for _ in range(4)]
    program = compile_graph(parse_graph(FOUR), CompilerConfig()).program
    file = aot.load(aot.compile(_four, tuple(arguments), path=folder / "four.kmill"))
    calls = {
        "eager": _four,
        "torch.compile, kernelmill": torch.compile(_four, backend="kernelmill"),
        "kernelmill, the program's own entry": program.call,
        "kernelmill, cached method": _Cached(folder).cached,
        "kernelmill, aot file": file,
    }
    ways = {f"{name}, four inputs": _Way(partial(call, *arguments)) for name, call in calls.items()}
    with_gradients = _Way(partial(file, *arguments), gradients=True)
    return {**ways, "kernelmill, aot file, four inputs, gradients on": with_gradients}
