"""What runs of random programs have found: docs/programs.json, and docs/programs.md from it.

A run adds its seeds and counts to those of earlier runs, revision by revision. A fault stays until
its seed is right again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs.check import Verdict
from tests.programs.generator import LAYERS_FROM
from tests.programs.modes import MODES
from tools.machine import description
from tools.program_workers import OWN_TRACES

RESULT = Path("docs/programs.md")
DATA = Path("docs/programs.json")
FIRST_SEED = LAYERS_FROM
STATUSES = ("right", "refused", "torch", "wrong")
FALLBACK = "ran in torch"

Counts = dict[str, Counter[str]]
"""By mode: how many programs have which status; and how many `FALLBACK`."""


@dataclass
class Fault:
    """A wrong program: its seed, the modes, and the smallest one found that is wrong so. `key` says
    what is wrong with the whole one."""

    seed: int
    revision: str
    key: str
    modes: list[str]
    text: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {', '.join(self.modes)}: {self.text}"


@dataclass
class Run:
    """Programs of some seeds at one revision. `seeds` are ranges, without their ends."""

    revision: str
    seeds: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    counts: Counts = field(default_factory=dict[str, Counter[str]])

    @property
    def programs(self) -> int:
        """How many."""
        return sum(end - first for first, end in self.seeds)

    def add(self, other: Run) -> None:
        """Adds what another run of the same revision has counted."""
        for first, end in other.seeds:
            if self.seeds and self.seeds[-1][1] == first:
                self.seeds[-1] = self.seeds[-1][0], end
            else:
                self.seeds.append((first, end))
        for mode, counts in other.counts.items():
            self.counts.setdefault(mode, Counter()).update(counts)


def counts_of(verdicts: Iterable[Verdict]) -> Counts:
    """The counts of one program."""
    found: Counts = {}
    for verdict in verdicts:
        if verdict.status != "invalid":
            counts = found.setdefault(verdict.mode, Counter())
            counts[verdict.status] += 1
            counts[FALLBACK] += verdict.fallback
    return found


@dataclass
class Record:
    """All runs, and the faults that are still there."""

    runs: list[Run] = field(default_factory=list[Run])
    faults: list[Fault] = field(default_factory=list[Fault])

    @property
    def next_seed(self) -> int:
        """Behind all seeds that have been run, and those of programs with fewer operators."""
        ends = (end for run in self.runs for _, end in run.seeds)
        return max([FIRST_SEED, *ends])

    def add(self, run: Run, faults: Iterable[Fault]) -> None:
        """Adds what was found for new seeds."""
        if not self.runs or self.runs[-1].revision != run.revision:
            self.runs.append(Run(run.revision))
        self.runs[-1].add(run)
        self.faults += faults

    def write(self) -> None:
        """Writes both files."""
        kept = {
            "runs": [vars(run) for run in self.runs],
            "faults": [vars(fault) for fault in self.faults],
        }
        DATA.write_text(json.dumps(kept, indent=1) + "\n")
        RESULT.write_text(document(self))


def recorded() -> Record:
    """What earlier runs have left."""
    if not DATA.exists():
        return Record()
    found: Any = json.loads(DATA.read_text())
    runs = [
        Run(
            run["revision"],
            [(first, end) for first, end in run["seeds"]],
            {mode: Counter(counts) for mode, counts in run["counts"].items()},
        )
        for run in found["runs"]
    ]
    faults = [
        Fault(one["seed"], one["revision"], one["key"], one["modes"], one["text"])
        for one in found["faults"]
    ]
    return Record(runs, faults)


_INTRODUCTION = """# Random programs

`python -m tools.programs` (`make sweep`) goes on from one run to the next; what it counts is kept \
in [programs.json](programs.json).

{programs} random programs, {checks} programs x modes. Each is called two or three times and \
compared with eager in numbers, dtype, shape, strides, shared memory, what is written to arguments \
and buffers, and gradients. Strides of empty results are nobody's concern; of two zeros either \
is taken where eager's own choice depends on where an element lies (`minimum`, `amax`, `max`, \
`clamp` between tensors), and a sum may overflow that does so in another order of its terms.

Modes that differ behind the backend's call only (default, reduce-overhead and the two \
super-kernel modes; dynamic and reduce-overhead-dynamic) get one trace of torch's, from which each \
compiles and runs a program of its own. One program in {own_traces} (and each before seed 102240) \
is traced by each mode for itself, and so is every one that is refused or wrong.

*Refused*: an error of ours says why the mode does not take the program. *Torch*: `aot_eager`, or \
torch.export's program, is wrong in the same way, or a result has the strides, without elements \
the shape, that torch's trace gives it. *Found wrong*: when they were run; *wrong*: those whose \
seeds are still wrong, listed below. *Ran in torch*: right, without a kernel of ours.

| mode | programs | right | refused | torch | found wrong | wrong | ran in torch |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def document(record: Record) -> str:
    """The whole of docs/programs.md."""
    whole = Run("")
    for run in record.runs:
        whole.add(run)
    checks = sum(counts[status] for counts in whole.counts.values() for status in STATUSES)
    text = _INTRODUCTION.format(
        programs=f"{whole.programs:,}", checks=f"{checks:,}", own_traces=OWN_TRACES
    )
    for mode in (mode.name for mode in MODES):
        counts = whole.counts.get(mode, Counter[str]())
        found = [counts[status] for status in STATUSES]
        wrong = sum(mode in fault.modes for fault in record.faults)
        row = [sum(found), *found, wrong, counts[FALLBACK]]
        text += f"| {mode} | {' | '.join(f'{count:,}' for count in row)} |\n"
    text += f"\n{description()}\n\n| revision | programs | seeds |\n| --- | ---: | --- |\n"
    for run in reversed(record.runs):
        seeds = ", ".join(f"{first} to {end - 1}" for first, end in run.seeds)
        text += f"| {run.revision} | {run.programs:,} | {seeds} |\n"
    for fault in record.faults:
        text += f"\n```text\n{str(fault).rstrip()}\n```\n"
    return text
