"""Kills processes in the middle of a cached method's first call, and starts eight at once.

python -m tools.torture_cache                 1,000 kills; writes its part of docs/reliability.md
python -m tools.torture_cache --kills 12      a quick run, printed and not written

Half of the processes are killed at a random moment, half when they are about to do their Nth
operation on a file of the cache or of the store of kernels.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelmill.inference import cache_compile
from tools.machine import description
from tools.reliability import write_part

FULL = 1000
AT_ONCE = 8
OPERATIONS = 60
"""A first call does some fifty on files."""

LOADED, WRONG, FAILED, TRACED, UNCACHED = 0, 1, 2, 10, 11
_FILES = (".kmill", ".lock", ".o", ".info", ".json", ".tmp-")
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.utime")


class Model(nn.Module):
    """Small, with a few kernels."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.LayerNorm(8)])
        self.cached = cache_compile(self.run, cache_dir=folder)

    def run(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The method that is cached."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x, x.sum(-1)


@dataclass
class Outcome:
    """What became of the processes, and what was wrong."""

    kills: int = 0
    finished: int = 0
    recovered: int = 0
    together: int = 0
    left: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


def work(folder: str) -> int:
    """One call in this process; the exit code."""
    model = Model(folder)
    x = torch.randn(3, 8)
    with torch.no_grad():
        expected, got = model.run(x), model.cached(x)
    try:
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    except AssertionError:
        return WRONG
    counts = model.cached.statistics
    if counts["uncached"]:
        return UNCACHED
    return TRACED if counts["traced"] else LOADED


def kill_at(operation: int) -> None:
    """Kill this process when it is about to do its Nth operation on a file."""
    done = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in _EVENTS and any(part in str(arguments[0]) for part in _FILES):
            done += 1
            if done == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def start(folder: Path, operation: int = 0) -> int:
    """A process that makes one call; killed by itself at an operation if one is given."""
    child = os.fork()
    if child:
        return child
    code = FAILED
    try:
        os.environ["KERNELMILL_KERNEL_META"] = str(folder / "kernel_meta")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its warnings are expected
        if operation:
            kill_at(operation)
        code = work(str(folder / "cache"))
    finally:
        os._exit(code)


def end_of(child: int) -> int:
    """The exit code of a process; minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def torture(kills: int, seed: int = 0) -> Outcome:
    """Fork, kill, check, so many times."""
    outcome, chance, began = Outcome(), random.Random(seed), time.monotonic()
    longest = 1.0
    while outcome.kills < kills:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for n in range(6):
                if outcome.kills >= kills:
                    break
                at_operation = bool((outcome.kills + n) % 2)
                child = start(folder, chance.randrange(1, OPERATIONS) if at_operation else 0)
                if not at_operation:
                    time.sleep(chance.uniform(0, longest))
                    os.kill(child, signal.SIGKILL)
                _count(outcome, end_of(child))
            began_undisturbed = time.monotonic()
            _recover(folder, outcome)
            longest = min(max(0.1, (time.monotonic() - began_undisturbed) / 2), 5.0)
    _together(outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


def _count(outcome: Outcome, code: int) -> None:
    outcome.kills += code == -signal.SIGKILL
    outcome.finished += code in (LOADED, TRACED)
    if code not in (LOADED, TRACED, -signal.SIGKILL):
        outcome.wrong.append(f"exit code {code} after {outcome.kills} kills")


def _recover(folder: Path, outcome: Outcome) -> None:
    """Undisturbed, a process is served, and the next one loads what it left."""
    codes = end_of(start(folder)), end_of(start(folder))
    outcome.left["loaded" if codes[0] == LOADED else "traced again"] += 1
    if codes[0] not in (LOADED, TRACED) or codes[1] != LOADED:
        outcome.wrong.append(f"exit codes {codes} after {outcome.kills} kills")
    outcome.recovered += 1


def _together(outcome: Outcome) -> None:
    """Of several processes that start cold, one traces."""
    with tempfile.TemporaryDirectory() as name:
        codes = sorted(map(end_of, [start(Path(name)) for _ in range(AT_ONCE)]))
    outcome.together = AT_ONCE
    if codes != [LOADED] * (AT_ONCE - 1) + [TRACED]:
        outcome.wrong.append(f"{AT_ONCE} processes at once: exit codes {codes}")


def document(outcome: Outcome) -> str:
    """The outcome as Markdown."""
    left = ", ".join(f"{count} {what}" for what, count in sorted(outcome.left.items()))
    rows = [
        ("processes killed in their first call", f"{outcome.kills:,}"),
        ("processes that finished first", f"{outcome.finished:,}"),
        ("undisturbed processes after up to six kills", left),
        ("wrong results, and processes after those that did not load", str(len(outcome.wrong))),
        (f"processes of {outcome.together} started at once that traced", "1"),
        ("seconds", f"{outcome.seconds:.0f}"),
    ]
    table = "\n".join(f"| {what} | {value} |" for what, value in rows)
    return (
        "# Reliability of the compile cache\n\n"
        f"`python -m tools.torture_cache` (`make torture`). {description()}\n\n"
        "Processes made the first call of a cached method on one folder, and were killed (SIGKILL) "
        "at random moments or operations on files: while tracing, compiling, saving, loading.\n\n"
        f"| | |\n| --- | ---: |\n{table}\n"
    )


def main() -> None:
    """Tortures, prints, writes when it was the full number."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture_cache")
    parser.add_argument("--kills", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the document for fewer kills")
    options = parser.parse_args()
    import kernelmill.backend.record  # noqa: F401  # what every trace imports

    torch.set_num_threads(1)  # a process with threads cannot be forked
    outcome = torture(options.kills, options.seed)
    text = document(outcome)
    print(f"{outcome.kills} kills", *outcome.wrong, text, sep="\n")
    if options.write or options.kills >= FULL:
        write_part("compile cache", text)
    sys.exit(bool(outcome.wrong))


if __name__ == "__main__":
    main()
