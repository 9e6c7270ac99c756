"""What lowering makes of the same graphs at two revisions: proof that a change inside of it changed
no kernel.

    python -m tools.kernel_texts capture FOLDER            graphs of models, as text
    python -m tools.kernel_texts digests FOLDER FILE       a line for each kernel of each graph
    python -m tools.kernel_texts compare FILE FILE         which lines differ; exit code 1 if any

Capture once; write the digests with the sources of each revision (PYTHONPATH); compare. A line is
`graph manner target kernel-name digest`, and the plan of each graph is a line of its own without
the estimates of work, which steer no kernel.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

TARGETS = ("x86-64-v3", "x86-64-v4")
MODELS = (
    "mlp", "decoder_step", "decoder_step_int8", "smollm2", "bert", "bert_8", "bert_bf16",
    "resnet50", "resnet50_8", "minilm", "minilm_16", "quant_matmul", "chain_4", "softmax_4",
    "layer_norm_4", "gpt2", "vit", "whisper_encoder", "t5", "decoder24",
)  # fmt: skip
"""Of the benchmark, at full size."""


def capture(folder: Path, names: list[str]) -> None:
    """Write the graph of each model, static and dynamic, before any pass."""
    import kernelmill
    from tools.bench import models

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for dynamic in (False, True):
            case = models.ROWS[name].build().case
            config = kernelmill.CompilerConfig()
            config.debug.graph_dump.type = "txt"
            config.debug.graph_dump.path = str(folder)
            torch.compiler.reset()
            for old in folder.glob("dynamo_*"):
                old.unlink()
            backend = kernelmill.get_backend(compiler_config=config)
            with torch.no_grad():
                torch.compile(case.model, backend=backend, dynamic=dynamic)(*case.args)
            for number, dumped in enumerate(sorted(folder.glob("dynamo_original_graph_*"))):
                manner = "dynamic" if dynamic else "static"
                dumped.rename(folder / f"{name}.{manner}.{number}.txt")
            for rest in folder.glob("dynamo_*"):
                rest.unlink()
            print(name, "dynamic" if dynamic else "static", flush=True)


def digests(folder: Path, result: Path, targets: list[str]) -> None:
    """Write what the sources at hand make of each graph in the folder."""
    lines: list[str] = []
    for path in sorted(folder.glob("*.txt")):
        started = time.perf_counter()
        for target in targets:
            for manner in ("fused", "separate"):
                lines += _lines(path, target, manner)
        print(f"{path.stem} {time.perf_counter() - started:.1f} s", flush=True)
    result.write_text("\n".join(lines) + "\n")


def _lines(path: Path, target: str, manner: str) -> Iterator[str]:
    from kernelmill.core.target.machine import profile
    from kernelmill.graph.text import parse_graph
    from kernelmill.kernel.text import print_kernel
    from kernelmill.lower.driver.program import lower_graph
    from kernelmill.passes import DEFAULT, run_pipeline
    from kernelmill.plan.text import print_plan

    graph = run_pipeline(parse_graph(path.read_text()), DEFAULT)
    lowered = lower_graph(graph, profile(target), manner == "separate")
    for name, kernel in lowered.kernels.items():
        yield f"{path.stem} {manner} {target} {name} {_digest(print_kernel(kernel))}"
    plan = "\n".join(map(_without_work, print_plan(lowered.plan).splitlines()))
    yield f"{path.stem} {manner} {target} plan {_digest(plan)}"


def _without_work(line: str) -> str:
    """A line of a plan without its `work(...)`."""
    before, found, rest = line.partition(" work(")
    depth = 1 if found else 0
    while depth:
        depth += {"(": 1, ")": -1}.get(rest[0], 0)
        rest = rest[1:]
    return before + rest


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def compare(first: Path, second: Path) -> int:
    """Print what only one file has; 0 when there is nothing."""
    mine, theirs = (set(path.read_text().splitlines()) for path in (first, second))
    for sign, only in (("-", mine - theirs), ("+", theirs - mine)):
        for line in sorted(only):
            print(sign, line)
    print(f"{len(mine & theirs)} equal, {len(mine - theirs)} and {len(theirs - mine)} of their own")
    return int(mine != theirs)


def main() -> int:
    """Run a command; returns its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int | None], *places: str) -> None:
        command = commands.add_parser(name)
        for place in places:
            command.add_argument(place, type=Path)
        command.set_defaults(run=run)
        if name == "capture":
            command.add_argument("--models", nargs="+", default=list(MODELS), metavar="MODEL")
        if name == "digests":
            command.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="TARGET")

    add("capture", lambda o: capture(o.folder, o.models), "folder")
    add("digests", lambda o: digests(o.folder, o.file, o.targets), "folder", "file")
    add("compare", lambda o: compare(o.first, o.second), "first", "second")
    options = parser.parse_args()
    return options.run(options) or 0


if __name__ == "__main__":
    sys.exit(main())
