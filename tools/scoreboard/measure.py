"""A row measured in this process: first calls one after another, results, then calls in turns."""

from __future__ import annotations

import gc
import json
import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import nn

import kernelmill
from kernelmill.inference import finish_packing
from kernelmill.report.measuring import OtherWork
from tests.zoo import Case
from tools.bench.contestants import CONTESTANTS, eager
from tools.bench.harness import Call, in_a_line
from tools.bench.limits import FLOATS, HALVES
from tools.bench.low_precision import halves
from tools.bench.measure import in_float64, ready, steady
from tools.bench.subject import Subject, poison, refill, tensors
from tools.libraries.harness import difference
from tools.machine import description, forget_peak, resident_memory, revision
from tools.scoreboard.lists import Row, UnavailableModel, installed
from tools.scoreboard.records import EAGER, INDUCTOR, MOST_OTHERS, OURS, RUNTIMES, TUNED, Result

Entrants = Mapping[str, Callable[[Subject], Call]]
MOST_ERROR = {FLOATS: 1e-3, HALVES: 5e-2}
"""Largest difference from float64, as a part of the largest number of a result, that is right."""

ROUNDING = 4.0
"""So many times eager's own difference is right as well: some models magnify rounding."""

TURNS_SECONDS = 5.0


class Ours:
    """The model by `kernelmill.compile`, as a user calls it."""

    def __init__(self, subject: Subject) -> None:
        self.args = subject.args
        self.compiled = kernelmill.compile(subject.case.model)
        self()

    def __call__(self) -> Any:
        return self.compiled(*self.args)


def contestants(tuned: bool) -> Entrants:
    """Return those that are installed, the slowest to compile last."""
    peers = (INDUCTOR, *filter(installed, RUNTIMES), *([TUNED] if tuned else ()))
    return {EAGER: eager, OURS: Ours, **{name: CONTESTANTS[name] for name in peers}}


def measured(row: Row, batch: int, dtype: str, entrants: Entrants, most_seconds: float) -> Result:
    """Return what is found of a row. The contestants, eager among them, have so many seconds each
    until their first result."""
    result = Result(description(), revision())
    try:
        subject = row.build(batch)
    except (UnavailableModel, ModuleNotFoundError) as reason:
        result.unavailable = str(reason)
        return result
    if dtype == HALVES:
        subject = halves(subject)
    result.shape = subject.case.shape
    model = subject.case.model
    result.weights = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    with torch.no_grad(), subject.settings():
        _import_all(entrants)
        watch = partial(_watched, result, most_seconds)
        calls = ready(subject, entrants, result.refused, watch)
        finish_packing()
        if OURS in calls:
            _tell_of_ours(calls[OURS], result)
        if EAGER in calls:
            _next(result, "comparing results")
            _judge(subject, calls, result)
        if {EAGER, OURS} <= calls.keys():
            _next(result, "steady calls")
            others = OtherWork()
            result.seconds = steady(calls, TURNS_SECONDS)
            _add(others, result)
    result.stopped = f"eager: {result.refused[EAGER]}" if EAGER in result.refused else ""
    if result.others > MOST_OTHERS:
        result.seconds = {}
        result.stopped = f"other work had {result.others:.0%} of the processors: measure again"
    return result


def _add(others: OtherWork, result: Result) -> None:
    """Record the most that other work had."""
    result.others = max(result.others, others.share() or 0.0)


def _next(result: Result, stage: str) -> None:
    """Print what was found so far, and what comes next, for who ends this process."""
    result.stopped = stage
    print(json.dumps(asdict(result)), flush=True)


def _import_all(entrants: Entrants) -> None:
    """Compile a small model by each: what they import then is no part of a row's first call."""
    small = Subject(Case("small", nn.Linear(8, 8).eval(), (torch.ones(2, 8),)))
    ready(small, {name: entrant for name, entrant in entrants.items() if name != TUNED}, {})


def _watched(result: Result, most_seconds: float, name: str, make: Callable[[], Call]) -> Call:
    """Make a contestant's call, with its time and its memory."""
    _next(result, f"first call of {name}")
    gc.collect()
    forget_peak()
    before, others, start = resident_memory(), OtherWork(), time.perf_counter()
    with within(most_seconds):
        call = make()
    result.first[name] = time.perf_counter() - start
    result.memory[name] = resident_memory(peak=True) - before
    if name == OURS:  # others, as Inductor, have processes of their own
        _add(others, result)
    return call


class _TooLong(BaseException):
    """No Exception: compilers go on after these."""


@contextmanager
def within(seconds: float) -> Generator[None]:
    """TimeoutError where the block takes longer, once it is in Python; for the main thread."""

    def stop(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TooLong:
        raise TimeoutError(f"not ready after {seconds:.0f} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- right or wrong -----------------------------------------------------------------------------


def _judge(subject: Subject, calls: dict[str, Call], result: Result) -> None:
    """Compare results, eager's first, on arguments that no contestant has seen, in memory that
    holds none. Those that are wrong, or fail, are taken out."""
    refill(subject.args)
    expected, most = list[Any](), 0.0
    for name, call in list(calls.items()):
        try:
            poison(call())
            found = _doubles(call())
        except Exception as reason:
            result.refused[name] = in_a_line(reason)
            del calls[name]
            if name == EAGER:
                return
            continue
        if name == EAGER:
            expected, own = _expected(subject, found)
            most, result.errors[name] = max(MOST_ERROR[subject.kind], ROUNDING * own), own
            continue
        # Runtimes return the first result alone.
        error = difference(expected[:1] if name in RUNTIMES else expected, found)
        result.errors[name] = error
        if not error <= most:
            result.wrong.append(name)
            del calls[name]


def _expected(subject: Subject, eager: list[Any]) -> tuple[list[Any], float]:
    """What is right, and eager's difference from it. It is float64's result, and eager's where
    there is none, or one with other shapes, whole numbers or infinities."""
    try:
        exact = _doubles(in_float64(subject))
    except Exception:
        return eager, 0.0
    own = difference(exact, eager)
    return (eager, 0.0) if own == float("inf") else (exact, own)


def _doubles(result: Any) -> list[Any]:
    return [
        (each.double() if each.is_floating_point() else each).clone() for each in tensors(result)
    ]


def _tell_of_ours(call: Any, result: Result) -> None:
    """What kernelmill.compile reports of its programs."""
    report = call.compiled.report()
    refused = [each.refused for each in report.captures if each.refused]
    result.graphs = len(report.programs) + len(report.captures) - len(refused)
    result.fallbacks = report.counters.get("aten_calls", 0)
    result.by_torch, result.uncompiled = list(report.torch), list(dict.fromkeys(refused))
