"""What the kernel store costs and saves.

python -m tools.bench.store             writes docs/performance-store.md
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.bench.by_machine import publish
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/performance-store.md")
KERNELS = 200


def child(call: str, folder: str, module: str = "tools.bench.store") -> Any:
    """What `{module}.{call}` returns in a fresh process whose kernels are in `folder`."""
    script = f"import json, {module} as m; print(json.dumps(m.{call}))"
    environment = os.environ | {
        "KERNELMILL_KERNEL_META": folder,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}-inductor",
    }
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def fill(count: int) -> list[str]:
    """Compile so many distinct kernels; their names in the store."""
    from kernelmill.compiler.objects import Request, obtain
    from kernelmill.core.target.machine import host
    from kernelmill.kernel.parser import parse_kernel
    from kernelmill.store import open_store

    text = (
        'kernel k{n}(a: f32[64] in, b: f32[64] out) tasks(1) type "Bench" {{'
        " %x: f32 = load a[{i}]  store b[{i}], %x }}"
    )
    made = [
        parse_kernel(text.format(n=n, i=n % 64).replace("[64]", f"[{64 + n}]"))
        for n in range(count)
    ]
    entries = obtain(
        [Request(kernel, ("layout",), "") for kernel in made], open_store(), host().isa
    )
    return [entry.name for entry in entries.values()]


def hits(count: int) -> dict[str, float]:
    """Seconds a kernel from digest to bytes, and from digest to address, with a full folder."""
    from kernelmill.runtime.linking import linker
    from kernelmill.store import Key, open_store

    store = open_store()
    wanted: list[tuple[Key, str]] = []
    for name in store.folder.names():
        info = json.loads(store.folder.read(f"{name}.info") or b"{}")
        launch = json.loads(store.folder.read(f"{name}.json") or b"{}")
        wanted.append((Key.of(info["ingredients"]), launch["kernelName"]))
    for key, _ in wanted:  # the digest is made the first time it is asked for
        assert key.digest
    start = time.perf_counter()
    entries = [store.get(key, "Bench") for key, _ in wanted]
    looked_up = time.perf_counter()
    linked = [
        linker.link_once(name, entry.object)[name]
        for (_, name), entry in zip(wanted, entries, strict=True)
        if entry is not None
    ]
    end = time.perf_counter()
    assert len(linked) == count == store.counts.hits
    return {"lookup": (looked_up - start) / count, "address": (end - start) / count}


def hold(folder: str) -> None:
    """Begin to compile a kernel, say so, and never end."""
    from kernelmill.store import Key, Store

    def compile() -> Any:
        print("compiling", flush=True)
        time.sleep(3600)

    Store(folder).get_or_compile(Key.of({"kernel": "taken over"}), "Bench", compile)


def takeover() -> float:
    """Seconds from the death of a process that compiles a kernel until another, which has waited,
    begins to compile it; what a SIGKILL takes is part of it."""
    from kernelmill.store import Compiled, Key, Store

    begun: list[float] = []

    def compile() -> Compiled:
        begun.append(time.perf_counter())
        return Compiled(b"\x7fELF", {}, {})

    with tempfile.TemporaryDirectory() as temporary:
        folder = f"{temporary}/kernel_meta"
        script = f"import tools.bench.store as m; m.hold({folder!r})"
        owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert owner.stdout is not None
        owner.stdout.readline()
        key = Key.of({"kernel": "taken over"})
        waiting = threading.Thread(
            target=lambda: Store(folder).get_or_compile(key, "Bench", compile)
        )
        waiting.start()
        time.sleep(0.3)
        assert not begun
        killed = time.perf_counter()
        owner.kill()
        waiting.join()
        owner.wait()
    return begun[0] - killed


def decoder(layers: int, backend: str) -> float:
    """Seconds to compile a decoder: kernelmill's codegen stage, or all that Inductor does."""
    import torch
    from torch._dynamo.utils import compile_times
    from transformers import LlamaConfig, LlamaModel

    size = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=100, num_hidden_layers=layers, use_cache=False, **size)
    model = LlamaModel(config).eval().requires_grad_(False)
    tokens = torch.arange(16)[None]
    if backend == "kernelmill":
        return stages(model, tokens)["codegen"]
    torch.compile(model, backend="inductor")(tokens)
    names, values = compile_times(repr="csv", aggregate=True)
    return float(dict(zip(names, values, strict=True))["compile_fx_inner"])


def edited_bert(activation: str) -> dict[str, float]:
    """Kernels compiled and seconds of the codegen stage for a BERT with this activation."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=12, attn_implementation="sdpa")
    model = BertModel(config).eval().requires_grad_(False)
    if activation != "gelu":
        model.pooler.activation = torch.nn.Sigmoid()
    tokens = torch.arange(16)[None]
    return stages(model, tokens)


def stages(model: Callable[..., object], tokens: object) -> dict[str, float]:
    """Kernels compiled, and seconds by stage, of all graphs of the model."""
    import torch

    from kernelmill.backend.entry import Backend
    from kernelmill.compiler import Compiled

    made: list[Compiled[Any]] = []
    torch.compile(model, backend=Backend(on_compiled=made.append))(tokens)
    reports = [each.report for each in made]
    found = {"compiled": float(sum(report.compiled for report in reports))}
    for report in reports:
        for stage, spent in report.seconds.items():
            found[stage] = found.get(stage, 0.0) + spent
    return found


def growth(backend: str, runs: int) -> tuple[float, float]:
    """Median seconds for 1 and for 24 layers, taking turns, each from empty caches."""
    turns = [
        [float(_cold(f"decoder({layers}, {backend!r})")) for layers in (1, 24)] for _ in range(runs)
    ]
    one, many = zip(*turns, strict=True)
    return statistics.median(one), statistics.median(many)


def _cold(call: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return child(call, f"{folder}/kernel_meta")


def main() -> None:
    """Measures, prints and writes the result."""
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = f"{temporary}/hits"
        child(f"fill({KERNELS})", folder)
        runs = [child(f"hits({KERNELS})", folder) for _ in range(5)]
        for what, goal in (("lookup", "50 us"), ("address", "0.3 ms")):
            spent = statistics.median(run[what] for run in runs)
            rows.append((f"hit, digest to {what}, a kernel of {KERNELS}", duration(spent), goal))
        spent = statistics.median(takeover() for _ in range(5))
        rows.append(("takeover from a killed owner", duration(spent), "100 ms"))
        folder = f"{temporary}/bert"
        child("edited_bert('gelu')", folder)
        edited = child("edited_bert('sigmoid')", folder)
        rows.append(("one operator of BERT edited: kernels", f"{edited['compiled']:.0f}", "1"))
        rows.append(("the same: compile stage", duration(edited["codegen"]), "150 ms"))
    for backend, runs, goal in (("kernelmill", 5, "1.3"), ("inductor", 3, "-")):
        one, many = growth(backend, runs)
        sizes = f"{duration(many)} / {duration(one)} = {many / one:.2f}"
        rows.append((f"decoder of 24 layers against 1, {backend}", sizes, goal))
    text = (
        "# Performance of the kernel store\n\n"
        f"`python -m tools.bench.store`, {description()}\n\n"
        + table(("what", "measured", "goal, at most"), rows)
        + "\n"
    )
    print(text)
    publish(RESULT, text)


if __name__ == "__main__":
    main()
