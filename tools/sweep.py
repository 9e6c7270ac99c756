"""Runs every sample of PyTorch's operator database through kernelmill; writes docs/coverage.md.

    python -m tools.sweep                        everything: about half an hour on two cores
    python -m tools.sweep --ops add nn --first 2 a part of it, printed and not written
    python -m tools.sweep --mend build/sweep-x.jsonl what failed in an earlier sweep, with all else
                                                 taken from there; the table says what ran when

A worker process checks one operator and dtype at a time. When it crashes or hangs, the sample
counts as failed and another worker goes on with the next one. Finished operators are kept in build/
under the digest of the sources: an interrupted sweep goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from tests.differential import opinfo
from tools.machine import description, revision

RESULT = Path("docs/coverage.md")
SAMPLE_SECONDS = 300.0
"""A sample that takes longer counts as hung, and as failed; a busy machine is five times slower."""

SAMPLES_OF_A_WORKER = 1000
"""Then a fresh one takes over: torch keeps something of every trace, and more of it is slower."""

KEPT_DETAILS = 5


@dataclass
class Outcome:
    """What became of the samples of one operator and dtype, at a revision of the sources."""

    op: str
    dtype: str
    counts: dict[str, int] = field(default_factory=dict[str, int])
    details: list[str] = field(default_factory=list[str])
    revision: str = ""

    def add(self, number: int, status: str, detail: str) -> None:
        self.counts[status] = self.counts.get(status, 0) + 1
        wanted = status == "failed" or detail not in "\n".join(self.details)
        if detail and wanted and len(self.details) < KEPT_DETAILS:
            self.details.append(f"sample {number} {status}: {detail}")


@dataclass
class Worker:
    """A process and the job it is at: `next_sample` is the first one without a verdict. `checked`
    are its samples of all jobs."""

    process: Any
    pipe: Connection
    outcome: Outcome | None = None
    next_sample: int = 0
    deadline: float = 0.0
    checked: int = 0

    def stop(self) -> None:
        """Ends the process, which is at no job."""
        self.pipe.send(None)
        self.process.join()


def recorded(path: Path) -> dict[tuple[str, str], Outcome]:
    """The outcomes in a file that a sweep has kept."""
    rows = (json.loads(line) for line in path.read_text().splitlines() if line)
    return {(row["op"], row["dtype"]): Outcome(**row) for row in rows}


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _serve(pipe: Connection, backend: str, first: int | None) -> None:
    """A worker: takes (op, dtype, sample), sends a verdict for each sample, then None."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    while (job := pipe.recv()) is not None:
        name, dtype_name, start = job
        op, dtype = opinfo.operators()[name], getattr(torch, dtype_name)
        for sample in islice(opinfo.samples(op, dtype), start, first):
            verdict = opinfo.check(op, sample, backend)
            pipe.send((verdict.status, verdict.detail))
        pipe.send(None)


class Sweep:
    """The pool: hands out jobs, collects verdicts, replaces workers that die."""

    def __init__(
        self, backend: str, first: int | None, record: Path, earlier: Path | None = None
    ) -> None:
        self.backend, self.first, self.record = backend, first, record
        self.context = multiprocessing.get_context("spawn")
        self.revision = revision()
        self.outcomes = {
            job: outcome
            for job, outcome in (recorded(earlier) if earlier else {}).items()
            if not outcome.counts.get("failed")
        }
        if record.exists():
            self.outcomes.update(recorded(record))
        self.remaining = 0

    def _start(self) -> Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(
            target=_serve, args=(theirs, self.backend, self.first), daemon=True
        )
        process.start()
        theirs.close()
        return Worker(process, ours)

    def _give(self, worker: Worker, outcome: Outcome, sample: int) -> None:
        worker.outcome, worker.next_sample = outcome, sample
        worker.deadline = time.monotonic() + SAMPLE_SECONDS
        worker.pipe.send((outcome.op, outcome.dtype, sample))

    def run(self, jobs: Iterable[tuple[str, str]], workers: int) -> None:
        """All jobs that are not on record yet."""
        todo = [job for job in jobs if job not in self.outcomes][::-1]
        self.remaining = len(todo)
        pool = [self._start() for _ in range(min(workers, len(todo)))]
        while pool:
            for at, worker in enumerate(pool):
                if worker.outcome is None and todo:
                    if worker.checked >= SAMPLES_OF_A_WORKER:
                        worker.stop()
                        pool[at] = self._start()
                    self._give(pool[at], Outcome(*todo.pop(), revision=self.revision), 0)
            for worker in [each for each in pool if each.outcome is None]:
                pool.remove(worker)
                worker.stop()
            ready = wait([worker.pipe for worker in pool], timeout=1.0)
            for at, worker in enumerate(pool):
                if worker.pipe in ready:
                    pool[at] = self._receive(worker)
                elif time.monotonic() > worker.deadline:
                    worker.process.kill()
                    pool[at] = self._replace(worker, f"more than {SAMPLE_SECONDS:.0f} s")

    def _receive(self, worker: Worker) -> Worker:
        assert worker.outcome is not None
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            return self._replace(worker, f"the process died, exit code {worker.process.exitcode}")
        if message is None:
            self._finish(worker.outcome)
            worker.outcome = None
        else:
            worker.outcome.add(worker.next_sample, *message)
            worker.next_sample += 1
            worker.checked += 1
            worker.deadline = time.monotonic() + SAMPLE_SECONDS
        return worker

    def _replace(self, worker: Worker, reason: str) -> Worker:
        """A new worker that goes on after the sample which killed the old one."""
        assert worker.outcome is not None
        worker.outcome.add(worker.next_sample, "failed", reason)
        fresh = self._start()
        self._give(fresh, worker.outcome, worker.next_sample + 1)
        return fresh

    def _finish(self, outcome: Outcome) -> None:
        self.outcomes[outcome.op, outcome.dtype] = outcome
        self.remaining -= 1
        print(
            f"{self.remaining:5} to go: {outcome.op} {outcome.dtype} {outcome.counts}", flush=True
        )
        self.record.parent.mkdir(parents=True, exist_ok=True)
        with self.record.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")


STATUSES = ("passed", "fell back", "uncaptured", "failed")


def totals(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Samples by status."""
    found: Counter[str] = Counter()
    for outcome in outcomes:
        found.update(outcome.counts)
    return found


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    return " / ".join(str(outcome.counts.get(status, 0)) for status in STATUSES)


def _revisions(outcomes: Iterable[Outcome]) -> str:
    """Which revisions the outcomes are of, the one of most of them first."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.revision, []).append(f"{outcome.op} {outcome.dtype}")
    (first, _), *rest = sorted(found.items(), key=lambda item: -len(item[1]))
    text = f"Revision {first}"
    for other, jobs in rest:
        text += f"; at {other}, because they had failed: {', '.join(jobs)}"
    return text + "."


def document(outcomes: dict[tuple[str, str], Outcome]) -> str:
    """The whole of docs/coverage.md."""
    dtypes = [_dtype_name(dtype) for dtype in opinfo.DTYPES]
    lines = ["# Operator coverage", "", "Written by `make sweep`. " + description(), ""]
    lines += [
        "Every sample of PyTorch's operator database on the CPU, compiled and compared with eager "
        "in values, dtype, shape and strides. *Passed*: compiled code alone. *Fell back*: at least "
        "one operator ran as ATen's own. *Uncaptured*: `torch.compile` itself cannot trace the "
        "sample and runs it in eager.",
        "",
        _revisions(outcomes.values()),
        "",
        "| dtype | samples | passed | fell back | uncaptured | failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for dtype in [*dtypes, "all"]:
        part = totals(o for (_, have), o in outcomes.items() if dtype in (have, "all"))
        row = [dtype, str(part.total()), *(str(part[status]) for status in STATUSES)]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "By operator: passed / fell back / uncaptured / failed.", ""]
    lines += [f"| operator | {' | '.join(dtypes)} |", "| --- |" + " ---: |" * len(dtypes)]
    for name in dict.fromkeys(op for op, _ in outcomes):
        cells = [_cell(outcomes.get((name, dtype))) for dtype in dtypes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    failures = [
        f"- {outcome.op}, {outcome.dtype}, {detail}"
        for outcome in outcomes.values()
        if outcome.counts.get("failed")
        for detail in outcome.details
    ]
    if failures:
        lines += ["", "## Failures", "", *failures]
    return "\n".join(lines) + "\n"


def _digest(backend: str, first: int | None) -> str:
    """Of all that a result depends on: the sources, the harness, torch and the choices."""
    hasher = hashlib.sha256(f"{backend} {first} {torch.__version__}".encode())
    for folder in ("src/kernelmill", "tests/differential"):
        for path in sorted(Path(folder).rglob("*.py")):
            hasher.update(path.read_bytes())
    return hasher.hexdigest()[:12]


def main() -> None:
    """Runs the sweep; exit code 1 when a sample failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.sweep", description=__doc__)
    parser.add_argument("--ops", nargs="+", default=[], help="only operators with such a word")
    parser.add_argument("--dtypes", nargs="+", default=[_dtype_name(d) for d in opinfo.DTYPES])
    parser.add_argument("--first", type=int, help="only so many samples of each")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--backend", default="kernelmill")
    parser.add_argument("--mend", type=Path, help="the record of an earlier sweep, in build/")
    options = parser.parse_args()
    jobs = [
        (name, dtype)
        for name, op in opinfo.operators().items()
        for dtype in options.dtypes
        if opinfo.supports(op, getattr(torch, dtype))
        and (not options.ops or any(word in name for word in options.ops))
    ]
    record = Path(f"build/sweep-{_digest(options.backend, options.first)}.jsonl")
    sweep = Sweep(options.backend, options.first, record, options.mend)
    sweep.run(jobs, options.workers)
    outcomes = {job: sweep.outcomes[job] for job in jobs}
    for outcome in outcomes.values():
        if outcome.counts.get("failed"):
            print(f"{outcome.op} {outcome.dtype}:", *outcome.details, sep="\n    ")
    summary = totals(outcomes.values())
    print(", ".join(f"{status} {summary[status]}" for status in STATUSES))
    whole = not options.ops and options.first is None and options.backend == "kernelmill"
    if whole and len(options.dtypes) == len(opinfo.DTYPES):
        RESULT.write_text(document(outcomes))
        print(f"written to {RESULT}")
    raise SystemExit(1 if summary["failed"] else 0)


if __name__ == "__main__":
    main()
