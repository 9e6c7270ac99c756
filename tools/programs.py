"""Runs random programs of torch operators in every mode.

    python -m tools.programs --minutes 10           goes on where docs/programs.json ends
    python -m tools.programs --count 0              only what was wrong, once more
    python -m tools.programs --seed 300 --count 9   these programs; no document is written
    python -m tools.programs --seed 7 --print       the program of a seed

A worker process checks one program in one mode after the other. When it crashes or hangs, the
program counts as wrong there and another worker goes on. What is wrong is made smaller and printed
as a Python module; it stays in the document until its seed is right again. Exit code 1 when
something is wrong.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from tests.programs.check import Verdict, by_name
from tests.programs.generator import generate
from tests.programs.minimise import minimise
from tests.programs.modes import MODES
from tests.programs.program import Program, module_text
from tools.machine import revision
from tools.program_record import Fault, Record, Run, counts_of, document, recorded
from tools.program_workers import Worker

ALL_MODES = [mode.name for mode in MODES]
MINIMISE_CHECKS = 200
CHUNK = 40
"""After so many programs the documents are written again."""


Known = Mapping[tuple[int, str], Fault]
"""Faults by seed and key."""

Checked = tuple[int, list[Verdict], list[Fault]]
"""What one seed's program is found to be."""


class Search:
    """Checks programs; each is one worker's, so that the outcome is that of one worker alone."""

    def __init__(self, modes: Sequence[str], workers: int) -> None:
        self.modes, self.revision = modes, revision()
        self._threads = ThreadPoolExecutor(workers)
        self._workers: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(workers):
            self._workers.put(Worker())

    def run(self, seeds: Iterable[int]) -> tuple[Run, list[Fault]]:
        """The counts of these seeds together, and the faults in their order."""
        whole = Run(self.revision)
        faults: list[Fault] = []
        for seed, verdicts, found in self._checked(seeds, {}):
            whole.add(Run(self.revision, [(seed, seed + 1)], counts_of(verdicts)))
            faults += found
        return whole, faults

    def again(self, faults: Sequence[Fault]) -> list[Fault]:
        """Those of the faults that are still there. One that is wrong in another way is new."""
        known = {(fault.seed, fault.key): fault for fault in faults}
        seeds = sorted({fault.seed for fault in faults})
        return [fault for *_, found in self._checked(seeds, known) for fault in found]

    def stop(self) -> None:
        """Ends the workers."""
        self._threads.shutdown()
        while not self._workers.empty():
            self._workers.get().stop()

    def _checked(self, seeds: Iterable[int], known: Known) -> Iterator[Checked]:
        return self._threads.map(lambda seed: self._check(seed, known), seeds)

    def _check(self, seed: int, known: Known) -> Checked:
        worker = self._workers.get()
        try:
            verdicts = worker.check(seed, self.modes)
            faults: dict[str, Fault] = {}
            for verdict in verdicts:
                if verdict.status != "wrong":
                    continue
                key = verdict.kind + " " + verdict.detail.partition(":")[0]
                if key not in faults:
                    old = known.get((seed, key))
                    text = _smallest(worker, seed, verdict) if old is None else old.text
                    faults[key] = Fault(seed, self.revision, key, [], text)
                faults[key].modes.append(verdict.mode)
            return seed, verdicts, list(faults.values())
        finally:
            self._workers.put(worker)


def _smallest(worker: Worker, seed: int, verdict: Verdict) -> str:
    """What is wrong with the smallest program found that is wrong in the same way, and its text."""
    checks = 0

    def fails(candidate: Program) -> bool:
        nonlocal checks
        if checks == MINIMISE_CHECKS or not by_name(verdict.mode).takes(candidate):
            return False
        checks += 1
        found = worker.check(candidate, [verdict.mode])
        return [(one.status, one.kind) for one in found] == [("wrong", verdict.kind)]

    smallest, detail = generate(seed), verdict.detail
    if fails(smallest):
        smallest = minimise(smallest, fails)
        again = worker.check(smallest, [verdict.mode])
        detail = again[0].detail if again else detail
    else:
        detail += "\nnot wrong when it is run by itself"
    model = module_text(smallest).partition("\n\n\nclass Marked")[0]
    text = f"{detail}\nsizes {smallest.sizes}\n\n{model}\n"
    print(f"seed {seed}, {verdict.mode}: {text}", flush=True)
    return text


def _go_on(search: Search, count: int | None, minutes: float | None) -> Record:
    """Runs what was wrong again, then new seeds, and writes the documents."""
    record, start, done = recorded(), time.monotonic(), 0
    record.faults = search.again(record.faults)
    record.write()
    while (count is None or done < count) and (
        minutes is None or time.monotonic() - start < 60 * minutes
    ):
        size = CHUNK if count is None else min(CHUNK, count - done)
        first = record.next_seed
        record.add(*search.run(range(first, first + size)))
        record.write()
        done += size
        print(f"{done} programs, {len(record.faults)} wrong", flush=True)
    return record


def main() -> None:
    """Runs the search."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--modes", nargs="+", choices=ALL_MODES, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--print", action="store_true", help="print the program of the seed")
    options = parser.parse_args()
    if options.seed is None and (options.print or options.modes):
        parser.error("--print and --modes need a --seed")
    if options.seed is not None and options.minutes is not None:
        parser.error("--minutes goes on where the documents end, without a --seed")
    if options.print:
        print(module_text(generate(options.seed)))
        return
    search = Search(options.modes or ALL_MODES, options.workers)
    if options.seed is None:
        minutes = 10.0 if options.minutes is None and options.count is None else options.minutes
        record = _go_on(search, options.count, minutes)
    else:
        count = 1 if options.count is None else options.count
        record = Record()
        record.add(*search.run(range(options.seed, options.seed + count)))
        print(document(record))
    search.stop()
    raise SystemExit(1 if record.faults else 0)


if __name__ == "__main__":
    main()
