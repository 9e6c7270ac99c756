"""Calls on a busy host, and by many callers: MiniLM on 32 tokens.

python -m tools.bench.busy [SECONDS]    prints two tables; SECONDS are those of each figure

The first has percentiles of a call while the machine is quiet, and while a process of its own keeps
one core busy. The second has calls a second, with p50 and p99, by 1, 2, 4 and 8 threads of one
process that call one program. Contestants take turns in one process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tools.bench import contestants
from tools.bench.models import minilm_line
from tools.bench.tables import duration, table
from tools.machine import description

CALLERS = (1, 2, 4, 8)
CONTESTANTS = {
    "eager": contestants.eager,
    "kernelmill": contestants.kernelmill,
    "kernelmill, ahead of time": contestants.kernelmill_aot,
    "ONNX Runtime": contestants.onnx_runtime,
}

Call = Callable[[], Any]


def percentile(times: Sequence[float], percent: int) -> float:
    """Of times in seconds, at least two of them."""
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


@contextmanager
def busy_core(busy: bool) -> Generator[None]:
    """Inside, a process keeps one core busy, if it is to be so."""
    command = [sys.executable, "-c", "while True: pass"]
    neighbour = subprocess.Popen(command) if busy else None
    try:
        yield
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()


def times_of(call: Call, seconds: float) -> list[float]:
    """The seconds of each call, one after the other for so long."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or len(found) < 2:
        call()
        found.append(time.perf_counter() - start)
    return found


def by_callers(call: Call, callers: int, seconds: float) -> tuple[float, list[float]]:
    """Calls a second of so many threads together, and the seconds of each call."""
    start = threading.Barrier(callers)
    found: list[list[float]] = [[] for _ in range(callers)]

    def work(number: int) -> None:
        with torch.no_grad():
            start.wait()
            found[number] = times_of(call, seconds)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(len(own) / sum(own) for own in found), [spent for own in found for spent in own]


def _neighbours(calls: dict[str, Call], seconds: float) -> str:
    rows: list[list[str]] = []
    for name, call in calls.items():
        row = [name]
        for busy in (False, True):
            with busy_core(busy):
                times = times_of(call, seconds)
            row += [duration(percentile(times, 50)), duration(percentile(times, 99))]
        rows.append(row)
    return table(["", "quiet p50", "quiet p99", "one core busy p50", "one core busy p99"], rows)


def _callers(calls: dict[str, Call], seconds: float) -> str:
    rows: list[list[str]] = []
    for callers in CALLERS:
        for name, call in calls.items():
            rate, times = by_callers(call, callers, seconds)
            spent = [duration(percentile(times, 50)), duration(percentile(times, 99))]
            rows.append([f"{name}, {callers}", f"{rate:.3g}", *spent])
    return table(["callers", "calls a second", "p50", "p99"], rows)


def main(seconds: float) -> None:
    """Measure and print."""
    subject = minilm_line()
    with torch.no_grad():
        calls = {name: make(subject) for name, make in CONTESTANTS.items()}
        print(description(), flush=True)
        print(_neighbours(calls, seconds), flush=True)
        print(_callers(calls, seconds), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
