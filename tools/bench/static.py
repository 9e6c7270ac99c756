"""What static kernels and captured programs gain.

python -m tools.bench.static            writes docs/performance-static.md
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.bench.by_machine import noted, publish
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/performance-static.md")
MODELS = ("bert", "decoder_step", "resnet50")
SHAPES = 500
LAUNCHES = 200

WHERE = (
    "Where the gain comes from, and where there is none:\n\n"
    "- Products with constant weights gain most: the static kernel has them packed for its own "
    "tiles, the dynamic one reads them in their own layout at each call. Weights beyond the "
    "second-level cache are streamed once and in order.\n"
    "- Operators on a few hundred numbers take 8 to 30 ns, of which the launch itself is 5 to "
    "6. Static kernels of one task have no loop over tasks, and loops of a few passes are "
    "written out.\n"
    "- Operators on larger tensors are limited by memory, and dynamic kernels are as fast: the "
    "same vectors, one masked tail. These are more than a third of the shapes, which lowers the "
    "mean.\n"
    "- Two kinds are faster as dynamic kernels, which are then used: rows looked up in a table, "
    "which the dynamic kernel spreads over more tasks; and the maximum over windows of a padded "
    "image."
)


def recorded(name: str, log: str) -> None:
    """Append the operators of a model in mode reduce-overhead to a log."""
    import kernelmill
    from tests import zoo

    case = getattr(zoo, name)(small=False)
    with torch.no_grad(), kernelmill.static_kernels.record(log):
        torch.compile(case.model, backend=reduce_overhead(), dynamic=False)(*case.args)


def reduce_overhead() -> Any:
    """A backend in that mode."""
    import kernelmill

    config = kernelmill.CompilerConfig()
    config.mode = "reduce-overhead"
    return kernelmill.get_backend(compiler_config=config)


def ratios(name: str, folder: str) -> list[tuple[float, str, str]]:
    """(dynamic over static, what was chosen, operator) for each operator shape of a model."""
    from kernelmill import static_kernels
    from kernelmill.compiler.choices import Choices
    from kernelmill.core.target.machine import host
    from kernelmill.static_kernels.offline import Offline
    from kernelmill.store.store import open_store

    log = os.path.join(folder, f"{name}.log")
    recorded(name, log)
    static_kernels.compile_log(log, 2, folder=folder)
    choices = Choices(open_store(folder), host())
    found: list[tuple[float, str, str]] = []
    for operator in Offline(log, "native", folder).operators:
        choice = choices.known(operator)
        if choice is not None and choice.static_ns:
            ratio = choice.dynamic_ns / choice.static_ns
            found.append((ratio, choice.kernel, f"{operator.type} {operator.shape}"))
    return sorted(found)


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def static_gain(folder: str) -> str:
    """A row for each model, and one for all of them."""
    rows: list[list[str]] = []
    every: list[tuple[float, str, str]] = []
    for name in MODELS:
        found = ratios(name, folder)
        every += found
        rows.append(_row(name, found))
        print(*rows[-1], flush=True)
    rows.append(_row("all", every))
    head = ["model", "operator shapes", "static over dynamic", "as chosen", "static chosen"]
    head += ["least", "most"]
    return table(head, rows)


def _row(name: str, found: list[tuple[float, str, str]]) -> list[str]:
    chosen = [ratio if kernel == "static" else 1.0 for ratio, kernel, _ in found]
    static = sum(kernel == "static" for _, kernel, _ in found)
    least, most = min(found), max(found)
    return [
        name, str(len(found)), f"{mean([ratio for ratio, _, _ in found]):.2f}x",
        f"{mean(chosen):.2f}x", str(static),
        f"{least[0]:.2f}x ({least[2]})", f"{most[0]:.2f}x ({most[2]})",
    ]  # fmt: skip


def chain(length: int) -> Callable[[Tensor], Tensor]:
    """So many small operators, one after the other."""

    def run(x: Tensor) -> Tensor:
        for number in range(length):
            x = x + 1.0 if number % 2 else x * 0.5
        return x

    return run


def replay() -> str:
    """Seconds a call of chains of small operators, and what one more launch costs."""
    x = torch.randn(16)
    backends = {"kernelmill reduce-overhead": reduce_overhead(), "eager": None}
    calls: dict[str, list[Callable[[Tensor], Tensor]]] = {}
    for name, backend in backends.items():
        made = [chain(LAUNCHES), chain(2 * LAUNCHES)]
        if backend is not None:
            torch._dynamo.reset()
            made = [torch.compile(each, backend=backend) for each in made]
        calls[name] = made
    calls["Inductor reduce-overhead (one fused kernel)"] = [
        torch.compile(chain(length), mode="reduce-overhead") for length in (LAUNCHES, 2 * LAUNCHES)
    ]
    rows: list[list[str]] = []
    with torch.no_grad():
        for name, (short, long) in calls.items():
            seconds, longer = (min(_timed(call, x) for _ in range(50)) for call in (short, long))
            rows.append([name, duration(seconds), f"{(longer - seconds) / LAUNCHES * 1e9:.0f} ns"])
    return table(["", f"{LAUNCHES} operators", "one more operator"], rows)


def _timed(call: Callable[[Tensor], Tensor], x: Tensor) -> float:
    call(x)
    start = time.perf_counter()
    for _ in range(20):
        call(x)
    return (time.perf_counter() - start) / 20


def many_shapes(log: str) -> None:
    """Write a log of distinct operator shapes: pointwise, reductions and products."""
    from kernelmill.compiler.recording import append, documents_of
    from kernelmill.core.dtype import F32
    from kernelmill.graph.builder import GraphBuilder

    documents: list[dict[str, Any]] = []
    for number in range(SHAPES):
        rows, columns = 16 + number, 64 + 8 * (number % 7)
        b = GraphBuilder("g")
        x = b.input("x", F32, (rows, columns))
        kind = number % 5
        if kind == 0:
            value = b.emit("matmul", x, b.input("y", F32, (columns, 96)))
        elif kind == 1:
            value = b.emit("reduce_sum", x, dims=(1,))
        elif kind == 2:
            value = b.emit("add", x, b.input("y", F32, (rows, columns)))
        else:
            value = b.emit(("exp", "tanh")[kind - 3], x)
        b.graph.results = [value]
        documents += documents_of(b.graph, fused=False)
    append(log, documents)


def offline(folder: str) -> str:
    """Seconds of `kernelmill static compile` in fresh processes: an empty folder, a full one."""
    log = os.path.join(folder, "many.log")
    many_shapes(log)
    command = [sys.executable, "-m", "kernelmill.cli", "static", "compile", log, "--jobs", "2"]
    command += ["--folder", os.path.join(folder, "many")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    rows: list[list[str]] = []
    for name in ("empty folder", "second run"):
        start = time.perf_counter()
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append([name, duration(time.perf_counter() - start), done.stdout.strip()])
        print(*rows[-1], flush=True)
    return table(["", "time", "what was done"], rows)


def document(gain: str, replayed: str, compiled: str, load: float) -> str:
    """The page with these tables; `load` is the machine's average before they were measured."""
    parts = [
        "# What static kernels and captures gain\n",
        f"{description()}\n",
        f"Written by `python -m tools.bench.static`; {load:.1f} other processes were busy.\n",
        "## Static kernels against dynamic ones\n",
        "The launches alone, repeated natively on one thread, both kernels writing to the same "
        "memory, parameters packed where the static kernel asks for it. *As chosen*: a static "
        "kernel that is not measured as fast as the dynamic one (within 2 %) is not used.\n",
        gain + "\n",
        *([noted(WHERE) + "\n"] if noted(WHERE) else []),
        "## Replay of a captured program\n",
        "A chain of operators on 16 numbers, a call from Python.\n",
        replayed + "\n",
        f"## {SHAPES} operator shapes compiled offline\n",
        "With two jobs, start of the process and choice by measure included.\n",
        compiled + "\n",
    ]
    return "\n".join(parts)


def main() -> None:
    """Measures and writes the result."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELMILL_KERNEL_META"] = folder
        tables = static_gain(folder), replay(), offline(folder)
    publish(RESULT, document(*tables, load))
    print(json.dumps({"written": str(RESULT)}))


if __name__ == "__main__":
    main()
