"""Prometheus metrics of all workers: one scrape reaches one worker, which answers for all.

Workers write their values to files in PROMETHEUS_MULTIPROC_DIR, which `examples.serve` sets.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

Reports = Mapping[str, Mapping[str, int]]
"""Counters by method and name."""

_HELP = "See docs/operations.md"
_GROWING = {"calls", "held_up", "repacks", "streamed", "copies", "loaded", "traced", "uncached"}
_OF_ALL_WORKERS = {"arena_bytes", "packing"}
"""What is added up: workers have the same programs, and map one file of packed weights."""

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """What one worker counts."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._requests = Counter("embed_requests", "Requests by status", ["status"], registry=own)
        self._texts = Counter("embed_texts", "Texts that were embedded", registry=own)
        self._seconds = Histogram(
            "embed_seconds", "Seconds of a request", buckets=_SECONDS, registry=own
        )
        self._call_seconds = Histogram(
            "kernelmill_call_seconds", "Seconds of a call of a compiled method", ["method"],
            buckets=_SECONDS, registry=own,
        )  # fmt: skip
        self._under_way = Gauge(
            "embed_under_way", "Requests under way", registry=own, multiprocess_mode="livesum"
        )
        self._ready = Gauge(
            "embed_ready_workers", "Ready workers", registry=own, multiprocess_mode="livesum"
        )
        self._own = own
        self._totals: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._known: dict[tuple[str, str], int] = {}

    def ready(self, reports: Reports) -> None:
        """The worker has warmed up."""
        self._ready.set(1)
        self.update(reports)

    def update(self, reports: Reports) -> None:
        """Take over the counters of each method, which takes microseconds."""
        for method, report in reports.items():
            for name, value in report.items():
                if name in _GROWING:
                    known = self._known.get((method, name), 0)
                    self._known[method, name] = value
                    # It begins anew where a method has let go of a program.
                    self._total(name).labels(method).inc(value - known if value >= known else value)
                else:
                    self._gauge(name).labels(method).set(value)

    def _total(self, name: str) -> Counter:
        """`kernelmill_..._total`: the client adds the ending."""
        if name not in self._totals:
            self._totals[name] = Counter(
                f"kernelmill_{name}", _HELP, ["method"], registry=self._own
            )
        return self._totals[name]

    def _gauge(self, name: str) -> Gauge:
        if name not in self._gauges:
            mode = "livesum" if name in _OF_ALL_WORKERS else "livemax"
            self._gauges[name] = Gauge(
                f"kernelmill_{name}", _HELP, ["method"],
                registry=self._own, multiprocess_mode=mode,
            )  # fmt: skip
        return self._gauges[name]

    def call(self, method: str) -> AbstractContextManager[Any]:
        """Inside, a compiled method is called."""
        return self._call_seconds.labels(method).time()

    @contextmanager
    def request(self, texts: int) -> Generator[None]:
        """Inside, a request with so many texts is served."""
        start = perf_counter()
        self._under_way.inc()
        status = "500"
        try:
            yield
            status = "200"
            self._texts.inc(texts)
        finally:
            self._under_way.dec()
            self._seconds.observe(perf_counter() - start)
            self._requests.labels(status).inc()


def exposition() -> bytes:
    """The metrics of all workers in Prometheus' text format."""
    _forget_dead_workers(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return generate_latest(registry)


def _forget_dead_workers(folder: Path) -> None:
    """What gauges said of a worker that was killed holds no more."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)
