"""What compiling for a fleet costs: executors side by side, and a fresh machine's start.

python -m tools.bench.fleet             writes docs/performance-fleet.md
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.bench.by_machine import publish
from tools.bench.gears import BATCHES, LENGTH
from tools.bench.store import child
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/performance-fleet.md")
KERNELS = 2000
NOTHINGS = 500
"""Tasks that do nothing, for what a task costs beyond its work."""

ROUNDS = 3
KEY = "measured" * 4


def bert() -> Any:
    """BERT-base and a batch of the smallest gear, as a job's factory."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig()).eval().requires_grad_(False)
    return model, (torch.randint(0, 30_000, (BATCHES[0], LENGTH)),)


def distinct(count: int) -> list[Any]:
    """So many distinct kernels, about as large as those of models: a product with an activation."""
    from kernelmill.codegen import key_of
    from kernelmill.core.isa import host_isa
    from kernelmill.fleet.task import CompileTask, Wanted

    text = (Path(__file__).parent / "fleet_kernel.txt").read_text()
    isa = host_isa()
    found = []
    for n in range(count):
        key = key_of(isa, kernel=text.replace("SCALE", f"{1 + n / 4096}"))
        task = CompileTask("Bench", key, f"k{n}")
        found.append(Wanted(task, {}, {"kernelName": f"k{n}"}))
    return found


@contextmanager
def _pool() -> Generator[Executor]:
    from kernelmill.fleet import LocalPool

    pool = LocalPool(2)
    try:
        yield pool
    finally:
        pool.shutdown()


@contextmanager
def _dask() -> Generator[Executor]:
    distributed: Any = importlib.import_module("distributed")
    options: Any = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


@contextmanager
def _ray() -> Generator[Executor]:
    from kernelmill.fleet import RayExecutor

    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield RayExecutor()
    finally:
        ray.shutdown()


EXECUTORS = {"processes here": _pool, "Dask": _dask, "Ray": _ray}


def nothing(_: int) -> None:
    """A task without work."""


def rates(name: str, kernels: int = KERNELS) -> dict[str, float]:
    """Kernels a second with two workers of an executor, seconds of a task beyond its work, and what
    a second run compiles. The workers are warm."""
    from kernelmill.fleet.dispatch import Dispatch
    from kernelmill.store import Store

    wanted = distinct(kernels)
    with EXECUTORS[name]() as executor, tempfile.TemporaryDirectory() as folder:
        _through(executor, Store(f"{folder}/warm"), distinct(4))
        start = time.perf_counter()
        for future in [executor.submit(nothing, n) for n in range(NOTHINGS)]:
            future.result()
        task = (time.perf_counter() - start) / NOTHINGS
        store = Store(f"{folder}/k")
        start = time.perf_counter()
        with Dispatch(executor, store, None, lambda _: None) as dispatch:
            dispatch.take(wanted)
            dispatch.settle(wait=True)
        seconds = time.perf_counter() - start
        again = _through(executor, Store(f"{folder}/k"), wanted)
    return {
        "rate": dispatch.progress.compiled / seconds,
        "task": task,
        "again": float(again),
        "failed": float(len(dispatch.failures)),
    }


def _through(executor: Executor, store: Any, wanted: Sequence[Any]) -> int:
    """How many of these are compiled."""
    from kernelmill.fleet.dispatch import Dispatch

    with Dispatch(executor, store, None, lambda _: None) as dispatch:
        dispatch.take(wanted)
        dispatch.settle(wait=True)
    return dispatch.progress.compiled


def fill(url: str) -> dict[str, float]:
    """Precompile BERT-base with its gears into a shared store."""
    import kernelmill
    from kernelmill.fleet import Job

    job = Job(bert, "bert", gears={"0": {0: BATCHES}})
    done = kernelmill.precompile([job], store=url)
    return {"compiled": float(done.compiled), "failed": float(len(done.failures))}


def fetch(url: str) -> dict[str, float]:
    """Seconds of `pull` into the folder, with what it imports."""
    start = time.perf_counter()
    from kernelmill.fleet import pull

    done = pull("bert", url)
    spent = time.perf_counter() - start
    return {"seconds": spent, "fetched": float(done.fetched), "bytes": float(done.bytes)}


@contextmanager
def redis_server(folder: str) -> Generator[str]:
    """The URL of a server of our own on a socket file in `folder`."""
    command = ["redis-server", "--port", "0", "--unixsocket", f"{folder}/socket", "--save", ""]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert any("accept connections" in line for line in server.stdout)
    try:
        yield f"unix://{folder}/socket?db=0"
    finally:
        server.kill()
        server.wait()


def warm_starts() -> dict[str, float]:
    """Seconds to the last of the gears' first calls with kernels in the folder, without any and a
    pull before, and of the pull alone: medians of rounds that take turns."""
    local: list[float] = []
    fresh: list[float] = []
    pulls: list[float] = []
    found: dict[str, float] = {}
    first = f"first_call('gears', {list(BATCHES)})"
    with tempfile.TemporaryDirectory() as folder, redis_server(folder) as url:
        found |= child(f"fill({url!r})", f"{folder}/local", "tools.bench.fleet")
        for number in range(ROUNDS):
            done = child(first, f"{folder}/local", "tools.bench.gears")
            local.append(done["seconds"])
            pulled = child(f"fetch({url!r})", f"{folder}/{number}", "tools.bench.fleet")
            done = child(first, f"{folder}/{number}", "tools.bench.gears")
            assert done["kernels"] == 0, "a pulled model compiles nothing"
            pulls.append(pulled["seconds"])
            fresh.append(pulled["seconds"] + done["seconds"])
            found |= {"fetched": pulled["fetched"], "bytes": pulled["bytes"]}
    return found | {
        "local": statistics.median(local),
        "fresh": statistics.median(fresh),
        "pull": statistics.median(pulls),
    }


def main() -> None:
    os.environ["KERNELMILL_REMOTE_KEY"] = KEY
    by_name: dict[str, list[dict[str, float]]] = {name: [] for name in EXECUTORS}
    for _ in range(ROUNDS):
        for name in EXECUTORS:
            by_name[name].append(child(f"rates({name!r})", "unused", "tools.bench.fleet"))
    median = {
        name: {field: statistics.median(row[field] for row in rows) for field in rows[0]}
        for name, rows in by_name.items()
    }
    base = median["processes here"]["rate"]
    rows = [
        [name, f"{one['rate']:.0f}", f"{one['rate'] / base:.2f}", duration(one["task"]),
         f"{one['again']:.0f}", f"{one['failed']:.0f}"]
        for name, one in median.items()
    ]  # fmt: skip
    warm = warm_starts()
    publish(RESULT, "\n\n".join([
        "# Compiling for a fleet",
        f"{KERNELS} distinct kernels, two workers of each executor, rounds in turns: {ROUNDS}, "
        "medians. *Task*: what a task without work takes. *Again*: kernels that a second run "
        "compiles.",
        table(["executor", "kernels/s", "of the first", "task", "again", "failed"], rows),
        f"BERT-base with {len(BATCHES)} batch sizes as gears, called once in each, by a fresh "
        f"process: {duration(warm['local'])} with all kernels in its folder, "
        f"{duration(warm['fresh'])} on a fresh machine that pulls them from Redis before "
        f"({warm['fetched']:.0f} kernels, {warm['bytes'] / 1e6:.1f} MB, "
        f"{duration(warm['pull'])} with imports).",
        description(),
    ]))  # fmt: skip


if __name__ == "__main__":
    main()
