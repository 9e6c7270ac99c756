"""Steady calls: the contestants take turns within one process, so that noise hits all alike."""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tools.bench.contestants import CONTESTANTS, FLOOR, Call, first_tensor
from tools.bench.limits import Limits, limits
from tools.bench.models import own_copy
from tools.bench.subject import Subject, operations, poison, refill, traffic

ROUND_SECONDS = 0.02
"""A turn lasts at least this long: short calls are repeated within it."""

PAUSE_SECONDS = 0.02
"""Between turns, for the spinning threads of the contestant before to fall asleep."""

LEAST_TURNS = 5


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
    """Every named contestant on one model, in turns, for about `budget` seconds altogether."""
    torch._dynamo.reset()
    moved = traffic(subject)
    copied = moved // 2 if subject.copies else 0
    standing = Standing(
        subject.name, subject.case.shape, subject.kind, operations(subject), moved,
        subject.copies, limits(copied),
    )  # fmt: skip
    with torch.no_grad(), subject.settings():
        calls = _ready(subject, names, standing.refused)
        _judge(subject, calls, standing)
        gc.collect()
        gc.disable()
        turns = _turns({name: (call, _repeats(call)) for name, call in calls.items()}, budget)
        gc.enable()
    standing.limits = standing.limits.best(limits(copied))
    standing.seconds = {name: statistics.median(times) for name, times in turns.items()}
    return standing


def _ready(subject: Subject, names: Sequence[str], refused: dict[str, str]) -> dict[str, Call]:
    """The contestants that compile; the others go to `refused` with their reason."""
    calls: dict[str, Call] = {}
    for name in names:
        try:
            calls[name] = CONTESTANTS[name](own_copy(subject))
        except Exception as reason:
            refused[name] = f"{type(reason).__name__}: {reason}".split("\n")[0][:200]
    return calls


def _judge(subject: Subject, calls: dict[str, Call], standing: Standing) -> None:
    """Errors on data that no contestant has seen, into memory that holds no result."""
    refill(subject.args)
    answer = _float64_answer(subject)
    for name, call in list(calls.items()):
        if name == FLOOR:
            continue
        poison(call())
        error = standing.errors[name] = _error_of(first_tensor(call()), answer)
        if not error.largest <= subject.wrong:
            standing.refused[name] = f"wrong result: {error}"
            del calls[name]


def _float64_answer(subject: Subject) -> torch.Tensor:
    """The first result of the model in float64."""
    model = copy.deepcopy(subject.case.model).double()
    args = [arg.double() if arg.is_floating_point() else arg for arg in subject.args]
    return first_tensor(model(*args))


def _error_of(result: torch.Tensor, answer: torch.Tensor) -> Error:
    scale = answer.abs().max().item() or 1.0
    difference = (result.double() - answer).abs()
    return Error(difference.max().item() / scale, difference.mean().item() / scale)


def _turns(calls: dict[str, tuple[Call, int]], budget: float) -> dict[str, list[float]]:
    turns: dict[str, list[float]] = {name: [] for name in calls}
    end = time.monotonic() + budget
    while time.monotonic() < end or min(map(len, turns.values())) < LEAST_TURNS:
        for name, (call, repeats) in calls.items():
            time.sleep(PAUSE_SECONDS)
            turns[name].append(_turn(call, repeats))
    return turns


def _turn(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _repeats(call: Call) -> int:
    once = min(_turn(call, 1) for _ in range(3))
    return max(1, int(ROUND_SECONDS / once))


def prepare(subject: Subject, names: Sequence[str]) -> dict[str, str]:
    """Everything that is done before measuring, which fills the contestants' caches; the reasons of
    those that cannot run."""
    refused: dict[str, str] = {}
    with torch.no_grad(), subject.settings():
        _ready(subject, names, refused)
    return refused
