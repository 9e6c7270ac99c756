"""Prometheus metrics of all workers: one scrape reaches one worker, which answers for all.

Workers write their values to files in PROMETHEUS_MULTIPROC_DIR, which `examples.serve` sets.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

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
        self._under_way = Gauge(
            "embed_under_way", "Requests under way", registry=own, multiprocess_mode="livesum"
        )
        self._ready = Gauge(
            "embed_ready_workers", "Ready workers", registry=own, multiprocess_mode="livesum"
        )
        self._counters = Gauge(
            "kernelmill", "Counters of the compiled program: docs/operations.md", ["counter"],
            registry=own, multiprocess_mode="livesum",
        )  # fmt: skip

    def ready(self, report: Mapping[str, int]) -> None:
        """The worker has warmed up."""
        self._ready.set(1)
        self.update(report)

    def update(self, report: Mapping[str, int]) -> None:
        """Take over the program's counters, which takes microseconds."""
        for name, value in report.items():
            self._counters.labels(name).set(value)

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
