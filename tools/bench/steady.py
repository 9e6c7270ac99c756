"""Steady calls: the contestants take turns within one process, so that noise hits all alike."""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tests.zoo import Case
from tools.bench.contestants import CONTESTANTS, Call, first_tensor

ROUND_SECONDS = 0.02
"""A turn lasts at least this long: short calls are repeated within it."""

PAUSE_SECONDS = 0.02
"""Between turns, for the spinning threads of the contestant before to fall asleep."""

WRONG = 1e-2
"""A contestant with a larger error is out of the race."""


@dataclass(frozen=True)
class Error:
    """How far the first result is from float64's, relative to the largest element of that."""

    largest: float
    mean: float


@dataclass
class Standing:
    """The results of one model: seconds a call (median of the turns) and errors, by contestant."""

    model: str
    shape: str
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    errors: dict[str, Error] = field(default_factory=dict[str, Error])
    refused: dict[str, str] = field(default_factory=dict[str, str])


def float64_answer(case: Case) -> torch.Tensor:
    """The first result of the model in float64."""
    model = copy.deepcopy(case.model).double()
    args = [arg.double() if arg.is_floating_point() else arg for arg in case.args]
    with torch.no_grad():
        return first_tensor(model(*args))


def error_of(result: torch.Tensor, answer: torch.Tensor) -> Error:
    scale = answer.abs().max().item() or 1.0
    difference = (result.double() - answer).abs()
    return Error(difference.max().item() / scale, difference.mean().item() / scale)


def _turn(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _repeats(call: Call) -> int:
    once = min(_turn(call, 1) for _ in range(3))
    return max(1, int(ROUND_SECONDS / once))


def race(case: Case, names: Sequence[str], budget: float) -> Standing:
    """Every named contestant on one model, in turns, for about `budget` seconds altogether."""
    torch._dynamo.reset()
    standing = Standing(case.name, case.shape)
    answer = float64_answer(case)
    calls: dict[str, tuple[Call, int]] = {}
    with torch.no_grad():
        for name in names:
            own = Case(case.name, copy.deepcopy(case.model), case.args)
            try:
                call = CONTESTANTS[name](own)
                standing.errors[name] = error_of(first_tensor(call()), answer)
                if standing.errors[name].largest > WRONG:
                    raise ArithmeticError(f"wrong result: {standing.errors[name]}")
            except Exception as reason:
                standing.refused[name] = f"{type(reason).__name__}: {reason}".split("\n")[0][:200]
                continue
            calls[name] = (call, _repeats(call))
        gc.collect()
        gc.disable()
        turns: dict[str, list[float]] = {name: [] for name in calls}
        end = time.monotonic() + budget
        while time.monotonic() < end or min(map(len, turns.values())) < 5:
            for name, (call, repeats) in calls.items():
                time.sleep(PAUSE_SECONDS)
                turns[name].append(_turn(call, repeats))
        gc.enable()
    standing.seconds = {name: statistics.median(times) for name, times in turns.items()}
    return standing
