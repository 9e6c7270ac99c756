"""Many machines that start at once, simulated: with and without a filled store and manifests.

python -m tools.scale                   measures, simulates, and writes docs/scale.md

The model. Each machine needs the same kernels and has some threads, each of which takes the next
kernel: a read of the store, and on a miss a compile and a write behind it. With a manifest all are
read in batches first. The store answers one request after the other; an answer takes its share of
the store's requests a second or of its bytes a second, whichever is longer, and the network's
latency. A read that takes longer than the client waits (store/remote.py) is given up, the kernel is
compiled, and the machine asks again after a pause (store/backoff.py); meanwhile it compiles and
writes nothing. What was given up is answered all the same, for nobody.
"""

from __future__ import annotations

import heapq
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmill.store import backends
from kernelmill.store.backoff import pause
from kernelmill.store.remote import TIMEOUT_SECONDS
from tools.bench.fleet import distinct, redis_server
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/scale.md")
MACHINES = (1, 100, 10_000)
BATCH = 256
"""Names in a request of a batch (store/backends.py)."""

SAMPLE = 64


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes. The first six are measured here, the others are assumptions.

    compile   of a kernel, on one core
    hit       of a kernel that lies in the folder
    request   the store's own time for one
    byte      the same, for each byte
    check     the machine's time for each byte: signature and checksums
    size      bytes of a kernel's entry
    latency   of the network, there and back
    threads   of a machine that compile and read
    kernels   that a model needs
    """

    compile: float
    hit: float
    request: float
    byte: float
    check: float
    size: float
    latency: float = 0.001
    threads: int = 4
    kernels: int = 320


@dataclass(frozen=True)
class Outcome:
    """Of all machines: seconds until half and until all are ready, requests, bytes that the store
    sends, kernels that are compiled."""

    half: float
    last: float
    requests: int
    bytes: float
    compiled: int


class Store:
    """One queue. `written` are the times from which on kernels are there."""

    def __init__(self, costs: Costs, filled: bool) -> None:
        self.costs = costs
        self.free = 0.0
        self.written: dict[int, float] = dict.fromkeys(range(costs.kernels), 0.0) if filled else {}
        self.requests, self.bytes = 0, 0.0

    def answer(self, now: float, size: float) -> float:
        """When the answer to a request at `now` is with the client."""
        self.free = max(self.free, now) + max(self.costs.request, size * self.costs.byte)
        self.requests += 1
        self.bytes += size
        return self.free + self.costs.latency


def simulate(costs: Costs, machines: int, filled: bool, manifest: bool) -> Outcome:
    """Let so many machines start at the same time. `filled`: the store has all kernels already."""
    store = Store(costs, filled)
    if manifest and filled:
        ready = sorted(_pulled(store, costs, machine) for machine in _batches(costs, machines))
        compiled = 0
    else:
        ready, compiled = _one_by_one(store, costs, machines)
    return Outcome(ready[len(ready) // 2], ready[-1], store.requests, store.bytes, compiled)


def _batches(costs: Costs, machines: int) -> list[list[int]]:
    """For each machine the kernels of its requests."""
    sizes = [min(BATCH, costs.kernels - first) for first in range(0, costs.kernels, BATCH)]
    return [sizes] * machines


def _pulled(store: Store, costs: Costs, sizes: list[int]) -> float:
    """When a machine that asked at 0 has all: first the manifest, then each batch. A machine waits
    for a batch before it asks for the next; who asks when makes no difference to when the last one
    is served, since the store is never idle."""
    end = store.answer(0.0, 64.0 * costs.kernels)
    for kernels in sizes:
        end = store.answer(end - costs.latency, kernels * costs.size)
    return end + costs.kernels * (costs.size * costs.check + costs.hit)


@dataclass
class _Machine:
    """The next kernel, failures in a row, the time of the last and until when the store is left
    alone, when the last kernel was there."""

    next: int = 0
    failures: int = 0
    failed: float = float("-inf")
    alone: float = float("-inf")
    ready: float = 0.0

    def may_ask(self, now: float) -> bool:
        """One thread at a time after a failure, and none in a pause; all as long as the first
        failure is not known yet."""
        if now < self.failed:
            return self.failures <= 1
        if now < self.alone:
            return False
        if self.failures:
            self.alone = now + TIMEOUT_SECONDS
        return True

    def gave_up(self, asked: float, chance: float) -> None:
        """What was asked then was not answered in time; threads that asked together fail once."""
        if asked >= self.failed:
            self.failures += 1
            self.failed = asked + TIMEOUT_SECONDS
            self.alone = self.failed + pause(self.failures, chance)


def _one_by_one(store: Store, costs: Costs, machines: int) -> tuple[list[float], int]:
    """(when each machine is ready, kernels compiled)"""
    states = [_Machine() for _ in range(machines)]
    chances = random.Random(0)
    # (when, machine, the kernel that it has compiled until then, or -1)
    events = [(0.0, machine, -1) for machine in range(machines) for _ in range(costs.threads)]
    heapq.heapify(events)
    compiled = 0
    while events:
        now, machine, made = heapq.heappop(events)
        state = states[machine]
        if made >= 0:
            compiled += 1
            if not state.failures:
                written = store.answer(now, costs.size)
                store.written[made] = min(store.written.get(made, written), written)
        state.ready = max(state.ready, now)
        if state.next < costs.kernels:
            kernel, state.next = state.next, state.next + 1
            end, found = _read(store, costs, now, kernel, state, chances)
            event = (end, machine, -1) if found else (end + costs.compile, machine, kernel)
            heapq.heappush(events, event)
    return sorted(state.ready for state in states), compiled


def _read(
    store: Store, costs: Costs, now: float, kernel: int, state: _Machine, chances: random.Random
) -> tuple[float, bool]:
    """When a thread that asks for a kernel now knows whether the store has it."""
    if not state.may_ask(now):
        return now, False
    there = store.written.get(kernel, float("inf")) <= now
    answered = store.answer(now, costs.size if there else 0.0)
    if answered - now > TIMEOUT_SECONDS:
        state.gave_up(now, chances.random())
        return now + TIMEOUT_SECONDS, False
    state.failures, state.alone = 0, float("-inf")
    return (answered + costs.size * costs.check + costs.hit, True) if there else (answered, False)


# ---- what it is driven by -----------------------------------------------------------------------


def measure() -> Costs:
    """The costs on this machine, with a Redis server on a socket."""
    from kernelmill.fleet.task import compile_task
    from kernelmill.store import Store as KernelStore
    from kernelmill.store.shared import SharedStore

    wanted = distinct(SAMPLE + 1)
    compile_task(wanted.pop().task)  # LLVM's own beginning
    images = [compile_task(one.task) for one in wanted]
    compile = _each(lambda: compile_task(wanted[0].task), 20)
    with tempfile.TemporaryDirectory() as folder, redis_server(folder) as url:
        store = KernelStore(f"{folder}/k")
        shared = SharedStore(url, b"measured" * 4)
        files = {}
        for one, image in zip(wanted, images, strict=True):
            assert isinstance(image, bytes)
            entry = store.put(one.task.key, one.task.type, one.compiled(image))
            named = store.files(entry)
            files[entry.name] = {f".{n.rpartition('.')[2]}": data for n, data in named.items()}
        for name, parts in files.items():
            shared.keep(name, parts)
        start = time.perf_counter()
        for one in wanted:
            assert store.get(one.task.key, one.task.type) is not None
        hit = (time.perf_counter() - start) / SAMPLE
        request = _each(lambda: shared.present(["none"]), 200)
        names = list(files)
        backend = backends.connect(url, TIMEOUT_SECONDS)
        raw = _each(lambda: backend.read_many(names), 20)
        checked = _each(lambda: sum(1 for _ in shared.fetch(names)), 20)
    size = sum(len(data) for parts in files.values() for data in parts.values()) / SAMPLE
    sent = SAMPLE * size
    return Costs(compile, hit, request, (raw - request) / sent, (checked - raw) / sent, size)


def _each(call: object, times: int) -> float:
    """Seconds of a call: the best of some rounds, since whatever else runs only adds to it."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()  # type: ignore[operator]
        best = min(best, time.perf_counter() - start)
    return best


CASES = (
    ("an empty store, kernels one by one", False, False),
    ("a filled store, kernels one by one", True, False),
    ("a filled store, `kernelmill pull`", True, True),
)


def main() -> None:
    costs = measure()
    rows = []
    for machines in MACHINES:
        for name, filled, manifest in CASES:
            found = simulate(costs, machines, filled, manifest)
            rows.append([
                f"{machines:,}", name, duration(found.half), duration(found.last),
                f"{found.requests:,}", f"{found.bytes / 1e9:.2f} GB", f"{found.compiled:,}",
            ])  # fmt: skip
    ten = replace(costs, request=costs.request / 10, byte=costs.byte / 10)
    copies = simulate(ten, MACHINES[-1], True, True)
    RESULT.write_text("\n\n".join([
        "# Many machines at once",
        "Written by `python -m tools.scale`, which simulates machines that start at the same "
        "moment with empty disks and need the same model; its source has the model of the store. "
        f"Measured and put in: {duration(costs.compile)} for a compile on one core, "
        f"{duration(costs.hit)} for a kernel in the folder, {duration(costs.request)} for a "
        f"request to a Redis server and {costs.byte * 1e9:.2f} ns a byte, {costs.check * 1e9:.2f} "
        f"ns a byte for the checks of who gets it, {costs.size / 1e3:.1f} kB an entry. Assumed: "
        f"{duration(costs.latency)} of network, "
        f"{costs.threads} threads a machine, {costs.kernels} kernels a model, one Redis server.",
        table(["machines", "way", "half are ready", "all are ready", "requests", "sent",
               "compiles"], rows),
        "What follows. An empty store does not help machines that start together: all miss at the "
        "same time and compile everything. A filled one that is asked kernel by kernel is soon "
        "slower than the 200 ms that a client waits; the machines then compile by themselves, as "
        "they would without it, and ask again at growing intervals. A pull asks a few times and "
        "waits for the answer, so that the server's bytes a second are the limit: with "
        f"{MACHINES[-1]:,} machines on ten servers, or on one with ten readable copies, all are "
        f"ready after {duration(copies.last)}. Where that is too long, put the pack into the "
        "image: then nobody asks.",
        description(),
    ]) + "\n")  # fmt: skip


if __name__ == "__main__":
    main()
