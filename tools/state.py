"""Runs random models whose state is edited between calls, by cached methods and in eager.

    python -m tools.state --minutes 10          from where docs/state.md ends; writes it
    python -m tools.state --seed 300 --count 9  these models; no document is written

Each worker process runs some models; where one crashes, its model counts as wrong. What is wrong is
made smaller and printed. Exit code 1 when something is wrong that torch.compile gets right.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from tests.state.check import Verdict, check, minimised
from tests.state.model import Program, generate, model_text, steps_text
from tools.machine import description

RESULT = Path("docs/state.md")
BEGIN, END = "<!-- counts -->", "<!-- end of counts -->"
OF_A_WORKER = 25
"""Torch keeps something of every module and trace: then a fresh one takes over."""
SECONDS = 900.0
"""What a worker may take."""
STATUSES = ("right", "torch", "wrong")
COUNTS = ("calls", "loaded", "traced", "uncached", "refused")


def serve(first: int, end: int) -> None:
    """A worker: prints a line of JSON for each model, and one before it."""
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for seed in range(first, end):
        print(json.dumps({"seed": seed}), flush=True)
        program = generate(seed)
        verdict = check(program)
        text = _smallest(program) if verdict.status == "wrong" else ""
        line = {"status": verdict.status, "counts": verdict.counts, "text": text}
        print(json.dumps(line), flush=True)


def _smallest(program: Program) -> str:
    """What is wrong with the smallest program found that is wrong too, and its text."""

    def verdict(program: Program) -> Verdict:
        try:
            return check(program)
        except Exception as error:  # what was taken away is needed
            return Verdict("invalid", repr(error))

    smallest = minimised(program, lambda smaller: verdict(smaller).status == "wrong")
    texts = model_text(smallest, "H"), steps_text(smallest), str(smallest.steps)
    return "\n".join((f"seed {program.seed}: {check(smallest).detail}", *texts))


def _by_worker(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """The counts of some models, and what was wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    seed, end = first, first + count
    while seed < end:
        command = [sys.executable, "-m", "tools.state", "--worker", str(seed), str(end)]
        try:
            made = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            output = made.stdout
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode()
        for line in map(json.loads, output.splitlines()):
            if "seed" in line:
                seed = line["seed"]
                continue
            seed += 1
            counts.update(line["counts"])
            counts[line["status"]] += 1
            wrong += [line["text"]] if line["text"] else []
        if seed < end:  # it has crashed there
            counts["wrong"] += 1
            wrong.append(
                f"seed {seed}: the process ended or hung\n{model_text(generate(seed), 'H')}"
            )
            seed += 1
    return counts, wrong


def _runs(first: int, count: int | None, minutes: float | None) -> Iterator[tuple[int, int]]:
    """Seeds for workers, until there are enough."""
    start, seed = time.monotonic(), first
    while (count is None or seed < first + count) and (
        minutes is None or time.monotonic() - start < 60 * minutes
    ):
        some = OF_A_WORKER if count is None else min(OF_A_WORKER, first + count - seed)
        yield seed, some
        seed += some


def search(
    first: int, count: int | None, minutes: float | None, workers: int
) -> tuple[int, Counter[str]]:
    """Runs models from a seed on: the next one, and counts."""
    counts: Counter[str] = Counter()
    runs, seed = _runs(first, count, minutes), first
    with ThreadPoolExecutor(workers) as threads:
        while some := [run for _, run in zip(range(workers), runs, strict=False)]:
            for found, wrong in threads.map(_by_worker, *zip(*some, strict=True)):
                counts += found
                for text in wrong:
                    print(text, flush=True)
            seed = sum(some[-1])
            print(f"{seed - first} models, {counts['wrong']} wrong", flush=True)
    return seed, counts


def write(first: int, end: int, counts: Counter[str]) -> None:
    """Puts the counts into docs/state.md."""
    rows = [f"| {name} | {counts[name]:,} |" for name in (*STATUSES, *COUNTS)]
    text = "\n".join(["| models | |", "| --- | ---: |", *rows])
    text += f"\n\nSeeds {first} to {end - 1}. {description()}"
    before, _, after = RESULT.read_text().partition(BEGIN)
    RESULT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after.partition(END)[2]}")


def main() -> None:
    """Runs the search."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="the first model; without it goes on")
    parser.add_argument("--count", type=int, help="how many models")
    parser.add_argument("--minutes", type=float, help="for how long to begin more")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(*options.worker)
        return
    first = _next_seed() if options.seed is None else options.seed
    count = options.count if options.count or options.minutes else 100
    end, counts = search(first, count, options.minutes, options.workers)
    if options.seed is None:
        write(first, end, counts)
    sys.exit(1 if counts["wrong"] else 0)


def _next_seed() -> int:
    """The one behind those of the document."""
    found: Sequence[str] = re.findall(r"^Seeds \d+ to (\d+)", RESULT.read_text(), re.MULTILINE)
    return int(found[0]) + 1


if __name__ == "__main__":
    main()
