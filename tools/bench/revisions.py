"""Two revisions side by side: what calls and first calls take.

Writes docs/performance-revisions.md.

    python -m tools.bench.revisions d430c08                     HEAD against another revision
    python -m tools.bench.revisions d430c08 --rows mlp bert     some models of the benchmark
    python -m tools.bench.revisions d430c08 --rounds 7          so many processes of each

Both are checked out beside each other. Processes of the one and of the other take turns, each with
an empty folder of kernels, and figures are ratios of the medians and of the least over processes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from tools.bench.by_machine import publish
from tools.bench.bytecode import have_bytecode
from tools.machine import description, revision

RESULT = Path("docs/performance-revisions.md")
ROWS = (
    "mlp",
    "decoder_step",
    "minilm",
    "bert",
    "bert_bf16",
    "resnet50",
    "quant_matmul",
    "decoder24",
)
MEASURED = ("call", "first call", "of which kernelmill")
_SECONDS = 2.0
"""Calls are measured for so long, but at least eleven of them."""


def measure(row: str) -> dict[str, float]:
    """Seconds of a call (the median), of the first one, and of ours in that."""
    import kernelmill
    from tools.bench import models

    subject = models.BUILDERS[row]()
    case = subject.case
    backend = kernelmill.get_backend()
    compiled = torch.compile(case.model, backend=backend, dynamic=False)
    with torch.no_grad(), subject.settings():
        start = time.perf_counter()
        compiled(*case.args)
        first = time.perf_counter() - start
        for _ in range(3):
            compiled(*case.args)
        time.sleep(1.0)  # weights are packed behind the back of the first calls
        gc.disable()
        calls: list[float] = []
        end = time.perf_counter() + _SECONDS
        while time.perf_counter() < end or len(calls) < 11:
            start = time.perf_counter()
            compiled(*case.args)
            calls.append(time.perf_counter() - start)
    ours = sum(each.import_seconds + each.compile_seconds for each in backend.captures)
    return dict(zip(MEASURED, (statistics.median(calls), first, ours), strict=True))


def in_process(tree: Path, row: str) -> dict[str, float]:
    """`measure` of a checkout's sources in a fresh process with an empty folder of kernels."""
    with tempfile.TemporaryDirectory(prefix="kernelmill-") as folder:
        paths = os.pathsep.join((str(tree / "src"), str(Path.cwd())))
        environment = {**os.environ, "PYTHONPATH": paths, "KERNELMILL_KERNEL_META": folder}
        command = [sys.executable, "-m", "tools.bench.revisions", "--measure", row]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def compare(old: Path, new: Path, rows: list[str], rounds: int) -> list[str]:
    """A line of the table for each row."""
    lines: list[str] = []
    for row in rows:
        found: dict[Path, list[dict[str, float]]] = {old: [], new: []}
        for number in range(rounds):
            for tree in (old, new) if number % 2 == 0 else (new, old):
                found[tree].append(in_process(tree, row))
        cells: list[str] = []
        for figure in MEASURED:
            times = [[one[figure] for one in found[tree]] for tree in (old, new)]
            before, after = map(statistics.median, times)
            least = min(times[1]) / min(times[0])
            cells.append(
                f"{before * 1e3:.4g} → {after * 1e3:.4g} ms, {after / before:.3f} ({least:.3f})"
            )
        lines.append(f"| {row} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Compares, or measures one row for the process that compares."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.revisions", description=__doc__)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    if arguments.revision is None:
        parser.error("which revision to compare with?")
    with tempfile.TemporaryDirectory(prefix="kernelmill-") as folder:
        old = Path(folder) / "old"
        subprocess.run(
            ["git", "worktree", "add", "-q", "--detach", old, arguments.revision], check=True
        )
        try:
            for tree in (old, Path.cwd()):
                have_bytecode(tree)
            lines = compare(old, Path.cwd(), arguments.rows, arguments.rounds)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], check=True)
    head = [
        "# Two revisions side by side",
        "",
        f"`python -m tools.bench.revisions {arguments.revision}`: {arguments.revision} → "
        f"{revision()}, medians over {arguments.rounds} processes of each, which took turns, and "
        f"their ratio. {description()}",
        "",
        "In parentheses the ratio of the least: all calls of one process may be slower than those "
        "of the next, by where the system lets it run, and the least of both met the same.",
        "",
        "*Of which kernelmill*: the stages of a compile after torch has traced the model, LLVM "
        "among them; the folder of kernels was empty.",
        "",
        f"| model | {' | '.join(MEASURED)} |",
        "| --- | --- | --- | --- |",
    ]
    publish(RESULT, "\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
