"""Runs the tests of cached methods and files without each private part of torch that they ask for,
as if its probe had failed, and says what became of them: `make test-without`.

First the tests of each module run in a new process: KERNELMILL_RECORD_INTERNALS collects which
parts they ask for, imports and the processes that they start included. A process asks for a part
once, so that what one test asks for counts for all of its module; to record each by itself would
take as long as it saves. **A part that is not asked for cannot change a test**: what a probe gives
is known to nobody but those who ask. Then each test runs without each part that its module asked
for, in a process that never had the part. Many tests share such a process, since they share the
part that is left out.

Processes are forks of one that has only imported torch (tests/fresh.py). They share a folder of
kernels: a kernel's key has whatever changes its bytes, so that one which is found is the one that
would have been compiled. Parts that only compiling asks for are left out with an empty folder.

    python -m tools.without_each --share 1/50                # of each fiftieth test, the first
    python -m tools.without_each --part native.packed tests/e2e/aot
    python -m tools.without_each --state build/without.jsonl --write

With --state, what has been found is kept in a file, and another run goes on from there; what failed
runs again. The file is of one state of the sources: remove it when they change. --write puts the
rows of the parts into docs/lab/private_parts.md, each with its day and revision, and leaves those
of other parts: all takes some hours, which several runs may share. --jobs says how many processes
run at a time. Tests that take long come last, so that of a run that is stopped most pairs are done.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import os
import platform
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import torch

from kernelmill.torch_internals import registry
from tests import outcomes, shares
from tests.fresh import FreshProcesses, fresh_processes
from tests.outcomes import Result
from tools.machine import kind, revision

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "lab" / "private_parts.md"
SUITE = ("tests/e2e/aot", "tests/e2e/cached", "tests/e2e/test_cache*.py")

COMPILING = "llvm."
"""How the names of parts begin that only compiling a kernel asks for."""

TOGETHER = 40
"""How many tests run in one process at most."""

LONG_SECONDS = 3.0
"""Tests that take longer come last."""

_BEGIN, _END = "<!-- without: what `make test-without` found -->\n", "<!-- end of without -->\n"
_KINDS = ("passed", "failed", "refused", "skipped")

Job = TypeVar("Job")


@dataclass(frozen=True)
class Found:
    """What became of a test: without a part, or if that is "" with all of them; `asked` are then
    those that its module asked for. "refused": an error said that it cannot do without the part."""

    test: str
    part: str
    outcome: str
    text: str = ""
    asked: tuple[str, ...] = ()
    seconds: float = 0.0


class State:
    """All that has been found, also in a file if there is a path. Several threads may add to it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._adding = threading.Lock()
        self.found: dict[tuple[str, str], Found] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._keep(Found(**json.loads(line)))

    def _keep(self, found: Found) -> None:
        self.found[found.test, found.part] = found

    def add(self, found: Iterable[Found]) -> None:
        """Keep these, in the place of what was found before for the same tests and part, and print
        those that failed."""
        with self._adding:
            for one in found:
                self._keep(one)
                if self._path is not None:
                    with self._path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(one)) + "\n")
                if one.outcome == "failed":
                    without = one.part or "nothing"
                    print(f"FAILED {one.test} without {without}\n{one.text}", flush=True)

    def settled(self, test: str, part: str) -> bool:
        """Whether the pair need not run: it did, and did not fail."""
        found = self.found.get((test, part))
        return found is not None and found.outcome != "failed"


class Runner:
    """Runs tests in new processes, one at a time, whose files are in `folder` and their kernels in
    `kernels`."""

    def __init__(self, processes: FreshProcesses, folder: Path, kernels: Path) -> None:
        self._processes, self._folder, self._kernels = processes, folder, kernels
        self._count = 0

    def collect(self, paths: Iterable[str]) -> list[str]:
        """The names of the tests that are in these files and folders."""
        arguments = ("-m", "pytest.__main__", "--collect-only", "-q", *paths)
        done = self._processes.run(*arguments, cwd=ROOT)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return [line for line in done.stdout.splitlines() if "::" in line]

    def record(self, tests: Sequence[str]) -> list[Found]:
        """What tests ask for between them, and become with all parts."""
        notes = self._folder / "asked"
        notes.write_text("")
        results = self._run(tests, KERNELMILL_RECORD_INTERNALS=str(notes))
        asked = tuple(sorted(set(notes.read_text().split())))
        return [Found(t, "", r.outcome, r.text, asked, r.seconds) for t, r in results.items()]

    def without(self, part: str, tests: Sequence[str]) -> list[Found]:
        """What becomes of tests without a part."""
        refusal = f"{part} is not as expected (it is not to be used)"
        return [
            Found(test, part, "refused" if refusal in r.text else r.outcome, r.text, (), r.seconds)
            for test, r in self._run(tests, part).items()
        ]

    def _run(self, tests: Sequence[str], part: str = "", **settings: str) -> dict[str, Result]:
        """What became of tests: in one process, and after one that a test has ended in another."""
        results: dict[str, Result] = {}
        while rest := [test for test in tests if test not in results]:
            results |= self._start(rest, part, settings)
        return results

    def _start(
        self, tests: Sequence[str], part: str, settings: Mapping[str, str]
    ) -> Mapping[str, Result]:
        """What became of those that have begun. RuntimeError where none has."""
        self._count += 1
        file = self._folder / f"{self._count}.outcomes"
        compiling = part.startswith(COMPILING)
        kernels = self._folder / f"{self._count}.kernels" if compiling else self._kernels
        options = ["-p", "tests.outcomes", "--outcomes", file, "--kernels", kernels]
        options += ["--without-internal", part] if part else []
        done = self._processes.run(
            "-m", "pytest.__main__", "-q", "-p", "no:cacheprovider", *options, *tests,
            cwd=ROOT, env={**os.environ, **settings},
        )  # fmt: skip
        results = outcomes.read(file)
        if not results:
            raise RuntimeError(f"no test has begun: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return results


def run_all(
    runners: Sequence[Runner], names: Sequence[str], parts: Sequence[str], state: State
) -> None:
    """Run what is not settled, without one part after another some of the tests: wherever it is
    stopped, an even choice has run, first of the tests that do not take long."""
    free = SimpleQueue[Runner]()
    for runner in runners:
        free.put(runner)

    def each(work: Callable[[Runner, Job], object], jobs: Iterable[Job]) -> None:
        def borrow(job: Job) -> None:
            runner = free.get()
            try:
                work(runner, job)
            finally:
                free.put(runner)

        with ThreadPoolExecutor(len(runners)) as pool:
            deque(pool.map(borrow, jobs), maxlen=0)

    def record(runner: Runner, module: Sequence[str]) -> None:
        if not all(state.settled(name, "") for name in module):
            state.add(runner.record(module))

    def leave_out(runner: Runner, job: tuple[str, Sequence[str]]) -> None:
        part, group = job
        if left := [name for name in group if not state.settled(name, part)]:
            state.add(runner.without(part, left))

    each(record, _by(_module, names))
    for long in (False, True):
        chosen = [name for name in names if is_long(state, name) is long]
        rounds = itertools.zip_longest(*(_groups(state, chosen, part) for part in parts))
        each(leave_out, filter(None, itertools.chain.from_iterable(rounds)))


def is_long(state: State, test: str) -> bool:
    """Whether a test takes long with all parts."""
    found = state.found.get((test, ""))
    return found is not None and found.seconds > LONG_SECONDS


def _groups(state: State, names: Sequence[str], part: str) -> list[tuple[str, list[str]]]:
    """A part with each of the groups of tests that run together without it, shuffled."""
    groups = [
        (part, group[start : start + TOGETHER])
        for group in _by(_folder, [name for name in names if is_pair(state, name, part)])
        for start in range(0, len(group), TOGETHER)
    ]
    return sorted(groups, key=_drawn)


def is_pair(state: State, test: str, part: str) -> bool:
    """Whether a test is to run without a part: it passes with all, and asks for this one."""
    found = state.found.get((test, ""))
    if found is None or found.outcome != "passed":
        return False
    return part in found.asked or part.startswith(COMPILING)


def _module(test: str) -> Path:
    return Path(test.partition("::")[0])


def _folder(test: str) -> Path:
    return _module(test).parent


def _by(place: Callable[[str], Path], names: Sequence[str]) -> list[list[str]]:
    return [list(group) for _, group in itertools.groupby(sorted(names, key=place), place)]


def _drawn(group: tuple[str, Sequence[str]]) -> bytes:
    part, names = group
    return hashlib.blake2b(f"{part} {names[0]}".encode()).digest()


def rows(state: State, names: Sequence[str], parts: Sequence[str], where: str) -> dict[str, str]:
    """A row for each part: the pairs of a test and the part by their outcome."""
    found: dict[str, str] = {}
    for part in parts:
        wanted = [name for name in names if is_pair(state, name, part)]
        counts = Counter(state.found[n, part].outcome for n in wanted if (n, part) in state.found)
        cells = [part, len(wanted), counts.total(), *(counts[kind] for kind in _KINDS), where]
        found[part] = f"| {' | '.join(map(str, cells))} |\n"
    return found


def table(rows: Mapping[str, str]) -> str:
    """A sentence with the sums, and the rows in the order of their parts."""
    numbers = [[int(cell) for cell in row.split("|")[2:4]] for row in rows.values()]
    pairs, ran = (sum(column) for column in zip(*numbers, strict=True))
    return (
        f"{ran} of {pairs} pairs of a test and a part that its module asks for ran.\n\n"
        f"| part | asked for by | ran | {' | '.join(_KINDS)} | when and where |\n"
        f"|---|---|---|{'---|' * len(_KINDS)}---|\n"
        f"{''.join(rows[part] for part in sorted(rows))}"
    )


def updated(document: str, new: Mapping[str, str], known: Sequence[str]) -> str:
    """The document with these rows in the place of those of the same parts. Those of parts that are
    not `known` go. ValueError if it has no place for them."""
    before, begin, rest = document.partition(_BEGIN)
    old, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT.name} has no place for the table")
    lines = [line for line in old.splitlines(keepends=True) if line.startswith("| ")][1:]
    rows = {line.split("|")[1].strip(): line for line in lines} | dict(new)
    return f"{before}{begin}{table({p: rows[p] for p in rows if p in known})}{end}{after}"


def _where() -> str:
    """When and where this runs, for a row."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{today}, {revision()}, {kind()}, {versions}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.without_each", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("paths", nargs="*", help="default: cached methods and files")
    parser.add_argument("--part", action="append", help="default: all")
    parser.add_argument("--share", default="1/1", metavar="K/N", help="of the tests, by name")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time")
    parser.add_argument("--state", type=Path, metavar="FILE", help="go on with what is there")
    parser.add_argument("--write", action="store_true", help="write the table")
    options = parser.parse_args(arguments)
    if options.write and (options.paths or options.share != "1/1"):
        parser.error("--write is for all tests, since rows say how many ask for a part")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the pairs; 1 if one failed."""
    options = _options(arguments)
    registry.register_all()
    parts = sorted(options.part or registry.known())
    share = shares.part_of(options.share)
    paths = options.paths or [str(path) for part in SUITE for path in sorted(ROOT.glob(part))]
    state = State(options.state)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runners: list[Runner] = []
        for number in range(options.jobs):
            own = folder / str(number)
            own.mkdir()
            processes = stack.enter_context(fresh_processes(own))
            runners.append(Runner(processes, own, folder / "kernels"))
        names = [name for name in runners[0].collect(paths) if shares.is_in(name, share)]
        run_all(runners, names, parts, state)
    print(table(found := rows(state, names, parts, _where())))
    if options.write:
        known = sorted(registry.known())
        DOCUMENT.write_text(updated(DOCUMENT.read_text(), found, known))
    wanted = [(name, part) for name in names for part in ("", *parts)]
    return int(any(pair in state.found and not state.settled(*pair) for pair in wanted))


if __name__ == "__main__":
    sys.exit(main())
