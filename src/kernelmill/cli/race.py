"""A model in eager, with kernelmill and with Inductor, called in turns so that noise hits all."""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelmill.backend.entry import Backend
from kernelmill.backend.graph_breaks import advice, in_short, place_of
from kernelmill.compiler.report import GraphReport
from kernelmill.config import CompilerConfig
from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.factory import Factory, user_code
from kernelmill.inference import finish_packing
from kernelmill.inference.record_shapes import named_tensors
from kernelmill.torch_internals.dynamo import graph_breaks

Call = Callable[[], Any]

_TURN_SECONDS = 0.02
"""A turn lasts at least this long: short calls are repeated within it."""

_LEAST_TURNS = 5
TOLERANCES: Mapping[torch.dtype, float] = {
    torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1,
}  # fmt: skip
"""Largest differences from eager's result, relative to its largest element, that another order of
sums explains in a deep model. Other dtypes have to be equal."""


@dataclass
class Standing:
    """One contestant. Seconds of the first call and, as median and quartiles, of later ones;
    `error` is the largest difference from eager, relative to eager's largest element; `refused` is
    the reason why it did not take part."""

    name: str
    refused: str = ""
    first_call: float = 0.0
    seconds: float = 0.0
    quartiles: tuple[float, float] = (0.0, 0.0)
    turns: int = 0
    error: float = 0.0
    agrees: bool = True


@dataclass
class Race:
    """The results. `operations` are the multiplications and additions of a call's products. The
    other facts are about kernelmill's compile; `breaks` are places and reasons of graph breaks.
    `repeats`: eager gives the same result twice."""

    standings: list[Standing]
    operations: int
    captured: int
    refused: list[str]
    breaks: list[str]
    advice: tuple[str, ...]
    reports: list[GraphReport] = field(default_factory=list[GraphReport])
    repeats: bool = True

    def named(self, name: str) -> Standing | None:
        """Return the contestant of this name if it was measured; None if it refused."""
        found = (each for each in self.standings if each.name == name and not each.refused)
        return next(found, None)


def race(
    factory: Factory, seconds: float, config: CompilerConfig, without_inductor: str,
    dynamic: bool | None = None,
) -> Race:  # fmt: skip
    """Measure for about so many seconds in all, not counting compiles. `without_inductor` is why
    Inductor is left out, "" to have it measured; `dynamic` is torch.compile's.

    UserCodeError where the model raises in eager.
    """
    torch.compiler.reset()
    reports: list[GraphReport] = []
    backend = Backend(config, on_compiled=lambda made: reports.append(made.report))
    before = len(graph_breaks())
    with torch.no_grad():
        with user_code(f"the model of {factory.name} failed"):
            expected, operations = _eager(factory)
            repeats = _worst(expected, _result(_call(factory, factory.model)))[0] == 0.0
        calls: dict[str, Call] = {"eager": _call(factory, factory.model)}
        standings = [Standing("eager")]
        for name, chosen in (("kernelmill", backend), ("inductor", "inductor")):
            if name != "inductor" or not without_inductor:
                compiled = torch.compile(factory.model, backend=chosen, dynamic=dynamic)
                standings.append(_ready(name, _call(factory, compiled), expected, calls))
            else:
                standings.append(Standing(name, without_inductor))
        finish_packing()
        _measure(calls, standings, seconds)
    breaks = graph_breaks(since=before)
    said = dict.fromkeys(
        f"{in_short(each)} at {place_of(each)}".removesuffix(" at ") for each in breaks
    )
    refused = [capture.refused for capture in backend.captures if capture.refused]
    return Race(
        standings, operations, len(backend.captures), refused, list(said), advice(breaks),
        list(reports), repeats,
    )  # fmt: skip


def why_no_inductor() -> str:
    """Return why Inductor cannot be measured; "" where it can: it needs a C++ compiler."""
    named = knobs.of_others(("CXX",)).get("CXX", "")
    if any(map(shutil.which, [named] if named else ["g++", "clang++", "c++"])):
        return ""
    return f"there is no C++ compiler {named}".rstrip()


def _call(factory: Factory, model: Callable[..., Any]) -> Call:
    return lambda: model(*factory.args, **factory.kwargs)


def _result(call: Call) -> list[torch.Tensor]:
    """Return the tensors of a call's result, with the same random numbers each time."""
    torch.manual_seed(0)
    return [tensor.clone() for _, tensor in named_tensors(call())]


def _eager(factory: Factory) -> tuple[list[torch.Tensor], int]:
    """Return the result to compare with, and the operations of a call."""
    counter = FlopCounterMode(display=False)
    with counter:
        result = _result(_call(factory, factory.model))
    return result, counter.get_total_flops()


def _ready(name: str, call: Call, expected: list[torch.Tensor], calls: dict[str, Call]) -> Standing:
    """Make the first call, which compiles. An error is recorded as the contestant's refusal."""
    standing = Standing(name)
    start = time.perf_counter()
    try:
        found = _result(call)
    except Exception as error:
        standing.refused = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        return standing
    standing.first_call = time.perf_counter() - start
    standing.error, standing.agrees = _worst(expected, found)
    calls[name] = call
    return standing


def _measure(calls: dict[str, Call], standings: list[Standing], budget: float) -> None:
    repeats = {name: _repeats(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    end = time.perf_counter() + budget
    while time.perf_counter() < end or min(map(len, times.values())) < _LEAST_TURNS:
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    for standing in standings:
        if standing.name in times:
            low, median, high = statistics.quantiles(times[standing.name], n=4)
            standing.seconds, standing.quartiles = median, (low, high)
            standing.turns = len(times[standing.name])


def _repeats(call: Call) -> int:
    """Return the calls of a turn, after one that warms up."""
    call()
    start = time.perf_counter()
    call()
    return max(1, round(_TURN_SECONDS / max(1e-7, time.perf_counter() - start)))


def _worst(expected: list[torch.Tensor], found: list[torch.Tensor]) -> tuple[float, bool]:
    """Return the largest error of all tensors, and whether all are within their tolerances."""
    if [_form(one) for one in expected] != [_form(one) for one in found]:
        return float("inf"), False
    errors = [_error(one, other) for one, other in zip(expected, found, strict=True)]
    limits = [TOLERANCES.get(one.dtype, 0.0) for one in expected]
    agrees = all(error <= limit for error, limit in zip(errors, limits, strict=True))
    return max(errors, default=0.0), agrees


def _form(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _error(expected: torch.Tensor, found: torch.Tensor) -> float:
    """Return the largest error relative to the largest element; inf if NaN or inf differ."""
    if expected.is_complex():
        expected, found = torch.view_as_real(expected), torch.view_as_real(found)
    expected, found = expected.double(), found.double()
    finite = expected.isfinite()
    if not torch.equal(finite, found.isfinite()):
        return float("inf")
    if not torch.equal(expected[~finite].nan_to_num(), found[~finite].nan_to_num()):
        return float("inf")
    expected, found = expected[finite], found[finite]
    if not expected.numel():
        return 0.0
    largest = expected.abs().max().item()
    return (expected - found).abs().max().item() / (largest or 1.0)
