"""How soon a fresh process has its first result, and what later calls cost.

python -m tools.bench.cache                 writes docs/performance-cache.md
python -m tools.bench.cache --models mlp    measures one model anew; the others' figures are kept

What contestants prepare (they compile for minutes) and the figures stay in build/bench-cache, in a
folder for each kind of processor, so that a second run takes a few minutes, and a long one can be
made in parts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench.by_machine import noted, publish, slug
from tools.bench.bytecode import have_bytecode
from tools.bench.cache_child import CONTESTANTS, MODELS
from tools.bench.child import child
from tools.bench.tables import duration, table
from tools.machine import description, kind

RESULT = Path("docs/performance-cache.md")
FOLDER = Path("build/bench-cache")
LIMITS = (
    "Packing reads each weight once and writes it once. Into memory that the process has never "
    "touched that takes several times as long as the memory needs for it: the system's handing out "
    "of 340 MB takes 60 to 120 ms on small pages, and 20 to 30 ms or up to 400 ms on large ones "
    "(here, on a virtual machine, whose host takes back what lies idle for some seconds). So a "
    "first call streams: each launch has its weights packed just before it, into 10 to 30 MB that "
    "are used again and again; a thread packs them for good, and calls that come meanwhile pack 64 "
    "MB each (*second call*). *Later calls* are those after that. Single weights above 32 MB (here "
    "the decoder's logits, 113 MB) are packed at once, since they fit no cache. The rest is Python:"
    " the entry's files and their checksums, the plan, the comparison of all that the trace read, "
    "the watch over it, parameters and tables. A profile of the decoder's first call, of 145 ms on "
    "a Zen 5 (2026-11-26): 24 ms packing the logits' weight at once, 12 ms all others launch by "
    "launch, 10 ms the launches, 21 ms the plan and its tables, 22 ms the watch, 9 ms the "
    "comparison, 8 ms the entry, 20 ms parameters. Tried: a thread that packs while calls go on "
    "(calls in a row took 25 to 370 ms until it was done), the same with a low priority (calls in a"
    " row took 25 ms each, and it was not done after 30 of them), large pages for what a call waits"
    " for (the 113 MB took 142 ms instead of 28), and packed weights in mapped files (nothing is "
    "handed out, but they have to be checksummed, so that no stale file is ever used)."
)
SECONDS = 15.0
"""Longest that the processes of one contestant take for a model, the last of them aside."""

OURS = "kernelmill"
TORCH = ("Inductor, full caches", "Inductor, artifacts")
TITLES = {
    "mlp": "MLP of 24 layers, 8x256",
    "bert": "BERT-base, 8 tokens",
    "decoder": "decoder, 30 layers, 135M, 8 tokens",
}
STEPS = ("imports", "wrap", "first")

Figures = dict[str, dict[str, list[dict[str, float]]]]
"""Measurements of processes by model and contestant."""


def process(model: str, contestant: str, folder: Path, what: str) -> dict[str, float]:
    """One process. RuntimeError with its last words when it fails."""
    command = [sys.executable, "-W", "ignore", "-m", "tools.bench.cache_child"]
    done = subprocess.run(
        [*command, model, contestant, str(folder), what],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1][:200])
    return json.loads(done.stdout.splitlines()[-1])


def race(model: str, folder: Path, turns: int, refused: dict[str, str]) -> dict[str, Any]:
    """The contestants that get through, in turns of one process each."""
    ready: list[str] = []
    for name in CONTESTANTS:
        own = folder / model / name.replace(" ", "-").replace(",", "")
        mark = own / "ready"
        refused.pop(f"{model}, {name}", None)
        try:
            # Ours is for these very sources.
            if name.startswith(OURS) or not mark.exists():
                print(f"{model}: {name} prepares", file=sys.stderr, flush=True)
                own.mkdir(parents=True, exist_ok=True)
                process(model, name, own, "prepare")
                mark.touch()
            ready.append(name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            refused[f"{model}, {name}"] = str(error)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ready}
    spent = dict.fromkeys(ready, 0.0)
    for _ in range(turns):
        for name in (name for name in ready if spent[name] < SECONDS):
            own = folder / model / name.replace(" ", "-").replace(",", "")
            began = time.monotonic()
            found[name].append(process(model, name, own, "run"))
            spent[name] += time.monotonic() - began
    return found


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure; "total" is of imports, wrapping and first call together."""
    total = [sum(run[step] for step in STEPS) for run in runs]
    names = (*STEPS, "call", "packing", "second")
    found = {name: statistics.median(run.get(name, 0.0) for run in runs) for name in names}
    return {**found, "total": statistics.median(total)}


def first_table(figures: Figures) -> str:
    """First results by model and contestant."""
    rows: list[list[str]] = []
    for model, contestants in figures.items():
        found = {name: medians(runs) for name, runs in contestants.items() if runs}
        ours = found.get(OURS)
        for name, times in found.items():
            ratio = (
                ""
                if ours is None or name.startswith(OURS)
                else f"{times['first'] / ours['first']:.1f}x"
            )
            steps = [duration(times[step]) for step in ("first", *STEPS[:2], "total", "call")]
            rows.append([f"{TITLES[model]}: {name}", *steps, ratio])
    head = [
        "model: contestant",
        "first call",
        "imports",
        "wrap",
        "all",
        "later call",
        "first, ratio",
    ]
    return table(head, rows)


def loading(figures: Figures) -> str:
    """What kernelmill's first call is made of, and how it compares with torch.compile's."""
    lines: list[str] = []
    for model, contestants in figures.items():
        if not contestants.get(OURS):
            continue
        ours = medians(contestants[OURS])
        text = f"- {TITLES[model]}: {duration(ours['first'])}, of which {duration(ours['packing'])}"
        text += f" packing weights; second call {duration(ours['second'])}"
        if routes := [medians(contestants[name]) for name in TORCH if contestants.get(name)]:
            best = min(route["first"] for route in routes)
            text += f"; the best route of torch.compile takes {best / ours['first']:.0f} times that"
        lines.append(text)
    return "\n\n".join(
        ["What kernelmill's first call is made of:", "\n".join(lines), noted(LIMITS)]
    ).rstrip()


def document(figures: Figures, refused: Mapping[str, str], calls: Mapping[str, Any]) -> str:
    """The whole document."""
    parts = [
        "# Performance of the compile cache",
        "Written by `python -m tools.bench.cache` (`make bench`). " + description(),
        "## First results",
        "Fresh processes that find what an earlier one left; contestants take turns, medians. "
        "Torch is imported and the model built before the clock starts. *imports* are the "
        "contestant's own libraries, *wrap* is what is done while a model is built "
        "(`cache_compile`, `torch.compile`), *first call* loads, checks, packs weights, runs; "
        "*later call* is the median of 20 after what a first call left to be done. "
        "*kernelmill* is `cache_compile`, with *mapped weights* its `mmap_packed_weights` (weights "
        "and packed weights are checksummed at the load), *aot file* is `kernelmill.aot.load` of a "
        "file that has weights packed. The aot files, ONNX Runtime and OpenVINO keep the weights "
        "in files of their own, and do not notice when the model's change.",
        first_table(figures),
        loading(figures),
        "\n".join(f"- {what}: {why}" for what, why in refused.items()),
    ]
    if "small" in calls:
        ways = dict(calls["small"])
        kernels = ways.pop("kernels", None)
        rows = [(name, duration(seconds)) for name, seconds in ways.items()]
        parts += [
            "## A call",
            "Four tensors of four floats in a dict with a list, two results in a dict with a "
            "tuple; kernels and the results' memory included. They take turns in one process.",
            table(["way", "time of a call"], rows),
        ]
        if kernels is not None:
            parts.append(
                f"A call of kernelmill takes {duration(ways[OURS])}, of which its kernels take "
                f"{duration(kernels)}: {duration(ways[OURS] - kernels)} above them (the goal is "
                "2 us). Torch's making and freeing of the two results, without its dispatcher, is "
                "0.7 us of that when done alone."
            )
    if "loop" in calls:
        loop = calls["loop"]
        outside = loop["seconds"] - loop["native"]
        step, python, checks = (
            s / loop["steps"] for s in (loop["seconds"], outside, loop["checks"])
        )
        parts += [
            "## A decoder's loop",
            f"{loop['steps']} steps of the 135M decoder with a static cache through one cached "
            f"method: {duration(loop['seconds'])}, of which {100 * python / step:.2f} % outside of "
            f"native entries. A step takes {duration(step)}: {duration(python)} in Python, from "
            f"the call of the method to its return, and {duration(checks)} in the native check of "
            "the call (the weights, what the trace read of the model and of the cache's objects, "
            "every tensor), which is counted as native, as are kernels. The sampling between two "
            "steps is not counted; what the clock takes for itself counts as Python.",
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> None:
    """Measures, and writes what there is by now when all models have figures."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.cache")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--calls", nargs="*", choices=("small", "loop"), default=["small", "loop"])
    options = parser.parse_args()
    have_bytecode()
    folder: Path = options.folder.absolute() / slug(kind())
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "figures.json"
    kept = json.loads(state.read_text()) if state.exists() else {}
    figures: Figures = kept.get("figures", {})
    refused, calls = kept.get("refused", {}), kept.get("calls", {})
    for model in options.models:
        figures[model] = race(model, folder, options.turns, refused)
    for what in options.calls:
        loop = f"decoder_loop({str(folder / 'loop')!r})"
        call = "small_calls()" if what == "small" else loop
        calls[what] = child(call, str(folder / "calls"), "tools.bench.cache_calls")
    state.write_text(json.dumps({"figures": figures, "refused": refused, "calls": calls}))
    text = document(figures, refused, calls)
    print(text)
    if set(figures) == set(MODELS):
        publish(RESULT, text)


if __name__ == "__main__":
    main()
