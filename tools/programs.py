"""Runs random programs of torch operators in every mode; writes docs/programs.md.

    python -m tools.programs --minutes 10 --seed 1      programs of seeds from 1 on
    python -m tools.programs --count 100 --modes aot    so many programs, in some modes

A worker process checks one program in one mode at a time. When it crashes or hangs, the program
counts as wrong and another worker goes on. What is wrong is made smaller and printed as a Python
module. Exit code 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from tests.programs.check import Verdict, by_name, check
from tests.programs.generator import generate
from tests.programs.minimise import minimise
from tests.programs.modes import MODES
from tests.programs.program import Program, module_text
from tools.machine import description
from tools.sweep import revision

RESULT = Path("docs/programs.md")
CHECK_SECONDS = 120.0
"""A program that takes longer in one mode counts as wrong."""

CHECKS_OF_A_WORKER = 1500
"""Then a fresh one takes over: torch keeps something of every module and trace."""

MINIMISE_SECONDS = 120.0
STATUSES = ("right", "refused", "torch", "wrong")


def _serve(pipe: Connection) -> None:
    """A worker: takes programs and names of modes, sends verdicts."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    while (job := pipe.recv()) is not None:
        program, mode = job
        try:
            verdict = check(program, by_name(mode))
        except Exception as error:  # of eager itself, or of the check
            verdict = Verdict(mode, "wrong", f"{type(error).__name__}: {error}", "check")
        pipe.send(verdict)


class Worker:
    """A process that checks programs, and is replaced when it dies or hangs."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process: Any = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._checks = 0

    def check(self, program: Program, mode: str) -> Verdict:
        """The verdict; "crash" or "hang" are kinds of wrong."""
        if self._checks >= CHECKS_OF_A_WORKER:
            self.stop()
            self._start()
        self._checks += 1
        self._pipe.send((program, mode))
        try:
            if self._pipe.poll(CHECK_SECONDS):
                return self._pipe.recv()
            kind, text = "hang", f"more than {CHECK_SECONDS:.0f} s"
        except (EOFError, ConnectionError):
            kind, text = "crash", "the process died"
        self._process.kill()
        self._process.join()
        self._start()
        return Verdict(mode, "wrong", text, kind)

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()


@dataclass
class Fault:
    """A wrong program: its seed, the modes, and the smallest one found that is wrong so."""

    seed: int
    modes: list[str]
    verdict: Verdict
    program: Program

    def __str__(self) -> str:
        model = module_text(self.program).partition("\n\n\nclass Marked")[0]
        return (
            f"seed {self.seed}, {', '.join(self.modes)}: {self.verdict.detail}\n"
            f"sizes {self.program.sizes}\n\n{model}\n"
        )


@dataclass
class Search:
    """Programs of one seed after another."""

    modes: list[str]
    worker: Worker = field(default_factory=Worker)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list[Fault])
    programs: int = 0

    def run(self, seed: int) -> None:
        """Checks the program of a seed in all modes."""
        program = generate(seed)
        self.programs += 1
        wrong: dict[tuple[str, str], list[Verdict]] = {}
        for mode in self.modes:
            if not by_name(mode).takes(program):
                continue
            verdict = self.worker.check(program, mode)
            if verdict.status == "invalid":
                continue
            self.counts[mode, verdict.status] += 1
            self.fallbacks[mode] += verdict.fallback
            if verdict.status == "wrong":
                key = verdict.kind, verdict.detail.partition(":")[0]
                wrong.setdefault(key, []).append(verdict)
        for verdicts in wrong.values():
            self._keep(seed, program, verdicts)
        if self.programs % 20 == 0:
            checks = sum(self.counts.values())
            print(
                f"{self.programs} programs, {checks} checks, {len(self.faults)} wrong", flush=True
            )

    def _keep(self, seed: int, program: Program, verdicts: list[Verdict]) -> None:
        first = verdicts[0]
        end = time.monotonic() + MINIMISE_SECONDS

        def fails(candidate: Program) -> bool:
            if time.monotonic() > end or not by_name(first.mode).takes(candidate):
                return False
            found = self.worker.check(candidate, first.mode)
            return found.status == "wrong" and found.kind == first.kind

        smallest = minimise(program, fails)
        again = self.worker.check(smallest, first.mode)
        fault = Fault(seed, [v.mode for v in verdicts], again, smallest)
        self.faults.append(fault)
        print(fault, flush=True)


def document(search: Search, seed: int, seconds: float) -> str:
    """The whole of docs/programs.md."""
    lines = [
        "# Random programs",
        "",
        f"`python -m tools.programs` (`make sweep`), revision {revision()}. " + description(),
        "",
        f"{search.programs:,} random programs, of seeds from {seed} on, in "
        f"{seconds / 60:.0f} minutes; {sum(search.counts.values()):,} programs x modes. Each is "
        "called two or three times and compared with eager in numbers, dtype, shape, strides, "
        "shared memory, what is written to arguments and buffers, and gradients. *Refused*: an "
        "error of ours says why the mode does not take the program. *Torch*: `aot_eager`, or "
        "torch.export's program, is wrong in the same way. *Ran in torch*: right, without a "
        "kernel of ours.",
        "",
        "| mode | programs | right | refused | torch | wrong | ran in torch |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for mode in search.modes:
        counts = [search.counts[mode, status] for status in STATUSES]
        row = [sum(counts), *counts, search.fallbacks[mode]]
        lines.append(f"| {mode} | {' | '.join(f'{count:,}' for count in row)} |")
    for fault in search.faults:
        lines += ["", "```text", str(fault).rstrip(), "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the search."""
    parser = argparse.ArgumentParser(prog="python -m tools.programs", description=__doc__)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", default=[mode.name for mode in MODES])
    parser.add_argument("--print", action="store_true", help="print the program of the seed")
    options = parser.parse_args()
    if options.print:
        print(module_text(generate(options.seed)))
        return
    search = Search(options.modes)
    minutes = 10.0 if options.minutes is None and options.count is None else options.minutes
    start = time.monotonic()
    while (options.count is None or search.programs < options.count) and (
        minutes is None or time.monotonic() - start < 60 * minutes
    ):
        search.run(options.seed + search.programs)
    search.worker.stop()
    text = document(search, options.seed, time.monotonic() - start)
    print(text)
    if len(options.modes) == len(MODES) and options.minutes is not None:
        RESULT.write_text(text)
    raise SystemExit(1 if search.faults else 0)


if __name__ == "__main__":
    main()
