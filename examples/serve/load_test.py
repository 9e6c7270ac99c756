"""500 mixed requests to a server with two workers: kernelmill, eager, ONNX Runtime.

    python -m examples.serve.load_test
    python -m examples.serve.load_test --requests 500 --callers 4 --json

All servers are up at the same time, and get blocks of the same requests in turns, so that what
disturbs one disturbs all; a server without requests sleeps. Prints requests a second, and the
median and the 99th percentile of what callers waited.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tools.machine import processor

CONTESTANTS = {
    "kernelmill": "examples.serve.model:CompiledEmbedder",
    "eager": "examples.serve.contestants:EagerEmbedder",
    "ONNX Runtime": "examples.serve.contestants:OnnxEmbedder",
}
_BLOCK = 50
_START_SECONDS = 900.0
_WORDS = (
    "the ferry to island leaves twice a day at nine and four she repaired old clock with parts "
    "from three others heavy rain has closed mountain road until friday could you send me invoice "
    "for last month bread rises faster in warm kitchen committee postponed its vote on new library"
).split()


def requests(count: int, seed: int = 0) -> list[list[str]]:
    """Texts of each request: mostly one or a few, of 4 to 100 words."""
    random_ = random.Random(seed)
    sizes = random_.choices((1, 2, 4, 8, 16), (50, 15, 15, 10, 10), k=count)
    return [[_text(random_) for _ in range(n)] for n in sizes]


def _text(random_: random.Random) -> str:
    return " ".join(random_.choices(_WORDS, k=random_.choice((4, 8, 15, 30, 60, 100))))


@dataclass
class Server:
    """`python -m examples.serve` with this model, run in a `folder` or here; and what its callers
    measured, in seconds."""

    name: str
    workers: int = 2
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: str | None = None
    waited: list[float] = field(default_factory=list[float])
    seconds: float = 0.0

    def __post_init__(self) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "examples.serve", "--port", str(self.port), "--workers",
                str(self.workers), "--grace", "600",
            ],
            cwd=self.folder,
            env={**os.environ, "SERVE_MODEL": CONTESTANTS[self.name], **self.environment},
        )  # fmt: skip

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of an answer, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """The sum of the metric's samples in all workers; 0 before there is one."""
        text = self.ask("GET", "/metrics")[1].decode()
        lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.split()[-1]) for line in lines)

    def wait_until_ready(self) -> None:
        """Until all workers are ready. RuntimeError when the server ends before."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.metric("embed_ready_workers") == self.workers:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"the server with {self.name} does not start")

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


def send(server: Server, block: Sequence[list[str]], callers: int) -> None:
    """The requests of a block, so many at a time; each answer is checked for its size."""

    def one(texts: list[str]) -> float:
        start = time.perf_counter()
        status, body = server.ask("POST", "/embed", {"texts": texts})
        spent = time.perf_counter() - start
        if status != 200 or len(json.loads(body)["vectors"]) != len(texts):
            raise RuntimeError(f"{server.name} answered {status}: {body[:200]!r}")
        return spent

    start = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        server.waited += pool.map(one, block)
    server.seconds += time.perf_counter() - start


def row(server: Server) -> dict[str, Any]:
    """The figures of one server: requests a second, and milliseconds."""
    waited = sorted(server.waited)
    return {
        "server": server.name,
        "requests_per_second": round(len(waited) / server.seconds, 1),
        "p50_ms": round(waited[len(waited) // 2] * 1e3, 1),
        "p99_ms": round(waited[len(waited) * 99 // 100] * 1e3, 1),
    }


def race(names: Sequence[str], count: int, callers: int) -> list[dict[str, Any]]:
    """The figures of each server, after so many requests to each."""
    servers: list[Server] = []
    try:
        for name in names:
            servers.append(Server(name))
            servers[-1].wait_until_ready()
        mixed = requests(count)
        for server in servers:
            send(server, requests(_BLOCK, seed=1), callers)  # not counted
            server.waited, server.seconds = [], 0.0
        for first in range(0, count, _BLOCK):
            for server in servers:
                send(server, mixed[first : first + _BLOCK], callers)
        return [row(server) for server in servers]
    finally:
        for server in servers:
            server.stop()


def main() -> None:
    """Run and print a table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m examples.serve.load_test")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--servers", default=",".join(CONTESTANTS), help="some of them")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.servers.split(",")
    if unknown := sorted(set(names) - set(CONTESTANTS)):
        parser.error(f"no server {unknown[0]}; there are {', '.join(CONTESTANTS)}")
    rows = race(names, options.requests, options.callers)
    about = {
        "date": datetime.date.today().isoformat(), "processor": processor(),
        "processors": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1),
        "requests": options.requests, "callers": options.callers,
    }  # fmt: skip
    if options.json:
        print(json.dumps({**about, "servers": rows}, indent=2))
        return
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print("| server | requests a second | p50 | p99 |\n|---|---|---|---|")
    for each in rows:
        print(
            f"| {each['server']} | {each['requests_per_second']} | {each['p50_ms']} ms | "
            f"{each['p99_ms']} ms |"
        )


if __name__ == "__main__":
    main()
