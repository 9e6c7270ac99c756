"""The fixed cost of a call: two inputs, one output, next to no work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernelmill.compiler import compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.graph.parser import parse_graph

ADD = "graph add(%a: f32[4], %b: f32[4]) { %sum = add(%a, %b) : f32[4] return %sum }"
CALLS, TURNS = 2000, 15


@dataclass(frozen=True)
class FixedCost:
    """Seconds a call, median of the turns, by way of calling."""

    seconds: dict[str, float]


def fixed_cost() -> FixedCost:
    """Measures `a + b` of four floats, each way in turn."""
    a, b = torch.ones(4), torch.ones(4)

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    ways: dict[str, Callable[[], Any]] = {"eager": partial(add, a, b)}
    for backend in ("inductor", "kernelmill"):
        compiled = torch.compile(add, backend=backend)
        ways[f"torch.compile, {backend}"] = partial(compiled, a, b)
    program = compile_graph(parse_graph(ADD), CompilerConfig())
    ways["kernelmill, the program's own entry"] = partial(program.call, a, b)
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.no_grad():
        for call in ways.values():
            call()
        for _ in range(TURNS):
            for name, call in ways.items():
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                times[name].append((time.perf_counter() - start) / CALLS)
    return FixedCost({name: statistics.median(turns) for name, turns in times.items()})
