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
OBJECT_BYTES = 4096
"""Of an object that takes no time, for what a kernel costs beyond its compile."""

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
    from kernelmill.core.target.isa import host_isa
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


def nothing(batch: Sequence[Any]) -> Any:
    """A batch without work, with results as large as real ones."""
    from kernelmill.fleet.task import BatchOutcome, Outcome

    return BatchOutcome("", tuple(Outcome(bytes(OBJECT_BYTES), 0.0) for _ in batch))


def rates(name: str, kernels: int = KERNELS) -> dict[str, float]:
    """Kernels a second with two workers of an executor, seconds that sending a kernel and getting
    its object take, kernels in a batch, and what a second run compiles. The workers are warm."""
    from kernelmill.fleet.batches import Costs, batches
    from kernelmill.fleet.dispatch import Dispatch
    from kernelmill.store import Store

    wanted = distinct(kernels)
    with EXECUTORS[name]() as executor, tempfile.TemporaryDirectory() as folder:
        _through(executor, Store(f"{folder}/warm"), distinct(8))
        sent = list(batches([one.task for one in wanted], Costs(), 2))
        start = time.perf_counter()
        for future in [executor.submit(nothing, batch) for batch in sent]:
            future.result()
        task = (time.perf_counter() - start) / kernels
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
        "batch": kernels / len(sent),
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


def start(url: str = "") -> dict[str, float]:
    """Seconds from the first import until BERT-base was called in all gears; with a URL the process
    pulls its kernels before, and `pull` are the seconds of that."""
    begun = time.perf_counter()
    import kernelmill.inference  # noqa: F401  what both need
    from tools.bench.gears import first_call

    spent = fetch(url)["seconds"] if url else 0.0
    done = first_call("gears", BATCHES)
    return {"seconds": time.perf_counter() - begun, "pull": spent, "kernels": done["kernels"]}


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
    """Medians of rounds that take turns. Seconds of a process with kernels in its folder, `local`,
    and of one that pulls them first, `fresh`, with its `pull`; and of a pull by itself, `alone`."""
    rows: dict[str, list[float]] = {"local": [], "fresh": [], "pull": [], "alone": []}
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, redis_server(folder) as url:
        found |= child(f"fill({url!r})", f"{folder}/local", "tools.bench.fleet")
        for number in range(ROUNDS):
            local = child("start()", f"{folder}/local", "tools.bench.fleet")
            fresh = child(f"start({url!r})", f"{folder}/{number}", "tools.bench.fleet")
            alone = child(f"fetch({url!r})", f"{folder}/{number}-alone", "tools.bench.fleet")
            assert local["kernels"] == fresh["kernels"] == 0, "a pulled model compiles nothing"
            rows["local"].append(local["seconds"])
            rows["fresh"].append(fresh["seconds"])
            rows["pull"].append(fresh["pull"])
            rows["alone"].append(alone["seconds"])
            found |= {"fetched": alone["fetched"], "bytes": alone["bytes"]}
    return found | {name: statistics.median(seconds) for name, seconds in rows.items()}


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
        "medians. *Overhead*: what a kernel takes there and back in its batch, of "
        f"{median['processes here']['batch']:.1f} on average, without its compile. *Again*: "
        "kernels that a second run compiles.",
        table(["executor", "kernels/s", "of the first", "overhead", "again", "failed"], rows),
        f"BERT-base with {len(BATCHES)} batch sizes as gears, called once in each, by a fresh "
        f"process, from its first import: {duration(warm['local'])} with all kernels in its "
        f"folder, {duration(warm['fresh'])} on a fresh machine where it pulls them from Redis "
        f"first ({warm['fetched']:.0f} kernels, {warm['bytes'] / 1e6:.1f} MB), of which the pull "
        f"takes {duration(warm['pull'])}. `kernelmill.fleet.pull` by itself, in a process of its "
        f"own, takes {duration(warm['alone'])} with its imports.",
        description(),
    ]))  # fmt: skip


if __name__ == "__main__":
    main()
