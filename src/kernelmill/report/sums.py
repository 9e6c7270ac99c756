"""Sums over the steps of a call: by kernel, by module; and two reports compared."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import InputError
from kernelmill.report.facts import AT_LIMIT, ProgramFacts, Step

_SHOWN = 0.01
"""Smallest part of the time of all steps for which a module has a row."""


@dataclass(frozen=True)
class KernelSum:
    """Launches of one kernel, or calls of one operator that runs in ATen: their number, their time
    in a call, its part of all steps' time, and the share of the machine's limit that they reach.
    `bound` is the first's, and `is_at_limit` says that nothing is left to gain."""

    title: str
    operators: tuple[str, ...]
    kind: str
    launches: int
    time: float
    part: float
    share: float | None
    bound: str
    is_at_limit: bool


@dataclass(frozen=True)
class ModuleSum:
    """The time in a call of the steps whose first operator a module or its children called.
    `path` is its name, "" for operators outside of modules."""

    path: str
    steps: int
    time: float
    part: float


def kernel_sums(programs: Sequence[ProgramFacts]) -> tuple[KernelSum, ...]:
    """Return the measured kernels and operators, those of the longest time first."""
    groups: dict[str, list[Step]] = defaultdict(list)
    for step in timed_steps(programs):
        groups[step.title].append(step)
    whole = time_of(timed_steps(programs))
    found = [_kernel_sum(title, steps, whole) for title, steps in groups.items()]
    return tuple(sorted(found, key=lambda each: -each.time))


def _kernel_sum(title: str, steps: Sequence[Step], whole: float) -> KernelSum:
    time, first = time_of(steps), steps[0]
    known = all(step.limit is not None for step in steps)
    share = sum(step.limit or 0.0 for step in steps) / time if known and time else None
    return KernelSum(
        title, first.operators, first.kind, len(steps), time, time / whole if whole else 0.0,
        share, first.bound, share is not None and share >= AT_LIMIT,
    )  # fmt: skip


def module_sums(programs: Sequence[ProgramFacts]) -> tuple[ModuleSum, ...]:
    """Return modules in the order of their names, each with its children's time. A module whose
    one child has all of its time has no row."""
    groups: dict[str, list[Step]] = defaultdict(list)
    for step in timed_steps(programs):
        for path in accumulate(step.module.split("."), "{}.{}".format):
            groups[path].append(step)
    whole = time_of(timed_steps(programs)) or 1.0
    sums = {path: ModuleSum(path, len(own), time_of(own), time_of(own) / whole)
            for path, own in groups.items()}  # fmt: skip
    parents = {path: path.rpartition(".")[0] for path in sums}
    same = {parent for path, parent in parents.items()
            if parent and sums[parent].steps == sums[path].steps}  # fmt: skip
    rows = [sums[path] for path in sorted(sums, key=_natural) if path not in same]
    return tuple(each for each in rows if each.part >= _SHOWN)


def _natural(path: str) -> str:
    """Return a key that sorts "layers.10" behind "layers.9"."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), path)


def timed_steps(programs: Iterable[ProgramFacts]) -> list[Step]:
    """Return the steps that ran in the measured calls."""
    return [step for facts in programs for step in facts.steps if step.time is not None]


def time_of(steps: Iterable[Step]) -> float:
    """Return nanoseconds of a call, of all these steps."""
    return sum(step.time or 0.0 for step in steps)


# ---- two reports ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """The time of a call that operators take in two reports; None where a report has none of them.
    `what` are the operators of a step and the tensors that it writes."""

    what: str
    before: float | None
    after: float | None

    @property
    def saved(self) -> float:
        """The time that is saved, in nanoseconds; negative for more time."""
        return (self.before or 0.0) - (self.after or 0.0)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the changes between two reports as `Explanation.as_dict` has them: the whole call,
    then groups of equal steps, those that changed most first. InputError for no such reports."""
    try:
        calls = Change("a call", before["call"]["compiled"], after["call"]["compiled"])
        then, now = _by_operators(before), _by_operators(after)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"no report of explain: {error!r}") from None
    rows = [Change(what, then.get(what), now.get(what)) for what in {**then, **now}]
    return calls, *sorted(rows, key=lambda row: -abs(row.saved))


def _by_operators(report: Mapping[str, Any]) -> dict[str, float]:
    """Names of kernels are no keys: another schedule is another name."""
    found: dict[str, float] = defaultdict(float)
    for program in report["programs"]:
        for step in program["steps"]:
            if step["time"] is not None:
                written = ", ".join(use["tensor"] for use in step["writes"])
                found[f"{' '.join(step['operators'])} -> {written}"] += step["time"]
    return dict(found)
