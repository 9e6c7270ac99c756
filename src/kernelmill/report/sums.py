"""Sums over the steps of a call: by kernel, by module; and two reports compared."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import InputError
from kernelmill.core.text import counted
from kernelmill.report.facts import (
    AT_LIMIT,
    CallFacts,
    GraphCounts,
    MachineFacts,
    ProgramFacts,
    Reason,
    Step,
)

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


_SMALL_NS = 5_000
"""A step shorter than this costs about as much to launch as to run."""

_MATTERS = 0.05
"""Smallest part of a call that counts as a reason."""

_NEAR = 0.5
"""Share of the limit by bytes from which a kernel is bound by memory."""


def reasons_of(
    call: CallFacts,
    programs: Sequence[ProgramFacts],
    machine: MachineFacts | None,
    before: Sequence[ProgramFacts],
    graphs: GraphCounts,
) -> tuple[Reason, ...]:
    """Return the reasons that matter, the longest first. `before` are the facts of the programs
    before calls were measured, for the growth of counters since."""
    if call.recorded is None:
        return ()
    found = [
        _fallbacks(call, programs),
        _outside(call, graphs),
        _launch_bound(call, programs),
        _memory_bound(programs),
        _threads(programs, machine),
        _below_limit(programs, machine),
        *_packing(programs, before, call),
        _padding(programs, call),
    ]
    least = _MATTERS * call.recorded
    kept = [reason for reason in found if reason is not None and reason.time >= least > 0]
    return tuple(sorted(kept, key=lambda reason: -reason.time))


def _run(steps: Sequence[Step], noun: str) -> str:
    return f"{counted(len(steps), noun)} run{'s' * (len(steps) == 1)}"


def _fallbacks(call: CallFacts, programs: Sequence[ProgramFacts]) -> Reason:
    aten = [step for step in timed_steps(programs) if step.kind == "aten"]
    names = ", ".join(dict.fromkeys(step.title for step in aten))
    text = f"fallbacks: in ATen {_run(aten, 'operator')}: {names}"
    advice = "read why in the list of fallbacks, and write your line with other operators"
    return Reason("fallbacks", call.aten, text, advice)


def _outside(call: CallFacts, graphs: GraphCounts) -> Reason:
    if graphs.captured == graphs.refused:
        text = "not compiled: all of the model runs in torch, behind Dynamo's guards"
        advice = "read why no graph was compiled, or run the model as it is"
        return Reason("not compiled", call.outside, text, advice)
    if graphs.breaks or graphs.refused:
        text = (
            f"not compiled: what is between the parts of a graph that Dynamo broke ({graphs.breaks}"
            f" times), and graphs that run in torch as a whole ({graphs.refused}); and Dynamo's "
            "guards for each part"
        )
        advice = "remove the graph breaks from your code"
        return Reason("not compiled", call.outside, text, advice)
    text = (
        "call overhead: Dynamo's guards, checks of arguments, allocating results, Python between "
        "graphs"
    )
    advice = "call through kernelmill.compile, cache_compile or aot, or with larger batches"
    return Reason("call overhead", call.outside, text, advice)


def _launch_bound(call: CallFacts, programs: Sequence[ProgramFacts]) -> Reason | None:
    small = [
        step for step in timed_steps(programs)
        if step.kind == "kernel" and not step.scope and (step.time or 0.0) < _SMALL_NS
    ]  # fmt: skip
    if len(small) < 2 and not call.between:
        return None
    text = (
        f"launch-bound: what is between steps, and kernels of less than {_SMALL_NS // 1000} us "
        f"({len(small)}), which cost about as much to launch"
    )
    advice = "make super kernels, which launch several kernels at once"
    return Reason("launches", call.between + time_of(small), text, advice)


def _memory_bound(programs: Sequence[ProgramFacts]) -> Reason:
    bound = [s for s in timed_steps(programs) if s.bound == "bytes" and (s.share or 0.0) >= _NEAR]
    text = (
        f"memory-bound: at {_NEAR:.0%} or more of the rate of caches or memory "
        f"{_run(bound, 'kernel')}"
    )
    advice = "use smaller numbers, which are fewer bytes: bf16, int8 weights"
    return Reason("memory", time_of(bound), text, advice)


def _threads(programs: Sequence[ProgramFacts], machine: MachineFacts | None) -> Reason | None:
    if machine is None or machine.threads == 1:
        return None
    few = [s for s in timed_steps(programs) if s.kind == "kernel" and s.threads == 1]
    text = (
        f"threads: on one of {counted(machine.threads, 'thread')} {_run(few, 'kernel')}, with "
        "work too small to be shared, or that cannot be split; this is what the others "
        "could have done"
    )
    idle = time_of(few) * (1 - 1 / machine.threads)
    return Reason("threads", idle, text, "call with larger batches, or give torch fewer threads")


def _below_limit(programs: Sequence[ProgramFacts], machine: MachineFacts | None) -> Reason | None:
    """Return the reason for kernels that take longer than their threads need by the machine's
    rates. Those that are short take as long as a launch in any case."""
    if machine is None:
        return None
    excess: dict[str, float] = {}
    for step in timed_steps(programs):
        if step.limit is None or not step.threads or (step.time or 0.0) < _SMALL_NS:
            continue
        least = step.limit * machine.threads / step.threads
        if step.time and least < AT_LIMIT * step.time:
            excess[step.title] = excess.get(step.title, 0.0) + step.time - least
    if not excess:
        return None
    text = (
        f"kernels: {counted(len(excess), 'kernel')} below {AT_LIMIT:.0%} of the machine's limit, "
        f"most of it in {max(excess, key=lambda title: excess[title])}; this is above the limit"
    )
    advice = (
        'measure schedules of products, convolutions and attention (config.aoe_config.aoe_mode = "2'
        '")' + ("" if machine.calibrated else "; first `kernelmill calibrate`, for the true limit")
    )
    return Reason("kernels", sum(excess.values()), text, advice)


def _packing(
    programs: Sequence[ProgramFacts], before: Sequence[ProgramFacts], call: CallFacts
) -> list[Reason]:
    found: list[Reason] = []
    whole = call.recorded or 0.0
    repacks = sum(now.repacks - then.repacks for now, then in zip(programs, before, strict=True))
    if repacks:
        text = f"packing: weights were packed again ({repacks} times): something writes to them"
        found.append(Reason("packing", whole, text, "do not write to weights between calls"))
    pending = sum(facts.packing for facts in programs)
    if pending:
        text = f"packing: weights are still packed while they are read ({pending} groups)"
        found.append(Reason("packing", whole, text, "wait: kernelmill.inference.finish_packing()"))
    copies = sum(now.copies - then.copies for now, then in zip(programs, before, strict=True))
    if copies:
        text = f"copies: misaligned or negated arguments were copied ({copies} times)"
        found.append(Reason("copies", call.outside, text, "pass tensors of their own memory"))
    return found


def _padding(programs: Sequence[ProgramFacts], call: CallFacts) -> Reason | None:
    """Return the reason for gears that ran with larger arguments than the caller's."""
    padded = [facts for facts in programs if facts.calls and facts.padded]
    if not padded:
        return None
    names = ", ".join(facts.name for facts in padded)
    text = f"padding: arguments were enlarged to a gear ({names})"
    time = call.kernels * max(facts.padded for facts in padded)
    return Reason("padding", time, text, "declare a gear that is nearer")
