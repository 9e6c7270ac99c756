"""Reasons for the time of a call, by parts of it."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.wording import counted
from kernelmill.report.facts import CallFacts, GraphCounts, MachineFacts, ProgramFacts, Reason, Step

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
        _threads(call, programs, machine),
        *_packing(programs, before, call),
        _padding(programs, call),
    ]
    least = _MATTERS * call.recorded
    kept = [reason for reason in found if reason is not None and reason.time >= least]
    return tuple(sorted(kept, key=lambda reason: -reason.time))


def _all_steps(programs: Sequence[ProgramFacts]) -> list[Step]:
    return [step for facts in programs for step in facts.steps if step.time is not None]


def _run(steps: Sequence[Step], noun: str) -> str:
    return f"{counted(len(steps), noun)} run{'s' * (len(steps) == 1)}"


def _time(steps: Sequence[Step]) -> float:
    return sum(step.time or 0.0 for step in steps)


def _fallbacks(call: CallFacts, programs: Sequence[ProgramFacts]) -> Reason | None:
    aten = [step for step in _all_steps(programs) if step.kind == "aten"]
    if not aten:
        return None
    names = ", ".join(dict.fromkeys(step.title for step in aten))
    return Reason("fallbacks", call.aten, f"fallbacks: in ATen {_run(aten, 'operator')}: {names}")


def _outside(call: CallFacts, graphs: GraphCounts) -> Reason:
    if graphs.captured == graphs.refused:
        text = "not compiled: all of the model runs in torch, behind Dynamo's guards"
        return Reason("not compiled", call.outside, text)
    if graphs.breaks or graphs.refused:
        text = (
            f"not compiled: what is between the parts of a graph that Dynamo broke ({graphs.breaks}"
            f" times), and graphs that run in torch as a whole ({graphs.refused}); and Dynamo's "
            "guards for each part"
        )
        return Reason("not compiled", call.outside, text)
    return Reason(
        "call overhead", call.outside,
        "call overhead: Dynamo's guards, checks of arguments, allocating results, Python "
        "between graphs; cache_compile and aot have less of it",
    )  # fmt: skip


def _launch_bound(call: CallFacts, programs: Sequence[ProgramFacts]) -> Reason | None:
    small = [
        step for step in _all_steps(programs)
        if step.kind == "kernel" and not step.scope and (step.time or 0.0) < _SMALL_NS
    ]  # fmt: skip
    if len(small) < 2 and not call.between:
        return None
    text = (
        f"launch-bound: what is between steps, and kernels of less than {_SMALL_NS // 1000} us "
        f"({len(small)}), which cost about as much to launch; super kernels launch several at once"
    )
    return Reason("launches", call.between + _time(small), text)


def _memory_bound(programs: Sequence[ProgramFacts]) -> Reason | None:
    bound = [s for s in _all_steps(programs) if s.bound == "bytes" and (s.share or 0.0) >= _NEAR]
    if not bound:
        return None
    text = (
        f"memory-bound: at {_NEAR:.0%} or more of the rate of caches or memory "
        f"{_run(bound, 'kernel')}; smaller numbers (bf16, int8 weights) are fewer bytes"
    )
    return Reason("memory", _time(bound), text)


def _threads(
    call: CallFacts, programs: Sequence[ProgramFacts], machine: MachineFacts | None
) -> Reason | None:
    if machine is None or machine.threads == 1:
        return None
    few = [s for s in _all_steps(programs) if s.kind == "kernel" and s.threads == 1]
    if not few:
        return None
    text = (
        f"threads: on one of {counted(machine.threads, 'thread')} {_run(few, 'kernel')}, with "
        "work too small to be shared, or that cannot be split; this is what the others "
        "could have done"
    )
    idle = _time(few) * (1 - 1 / machine.threads)
    return Reason("threads", idle, text)


def _packing(
    programs: Sequence[ProgramFacts], before: Sequence[ProgramFacts], call: CallFacts
) -> list[Reason]:
    found: list[Reason] = []
    whole = call.recorded or 0.0
    repacks = sum(now.repacks - then.repacks for now, then in zip(programs, before, strict=True))
    if repacks:
        text = f"packing: weights were packed again ({repacks} times): something writes to them"
        found.append(Reason("packing", whole, text))
    pending = sum(facts.packing for facts in programs)
    if pending:
        text = f"packing: weights are still packed while they are read ({pending} groups)"
        found.append(Reason("packing", whole, text))
    copies = sum(now.copies - then.copies for now, then in zip(programs, before, strict=True))
    if copies:
        text = f"copies: misaligned or negated arguments were copied ({copies} times)"
        found.append(Reason("copies", call.outside, text))
    return found


def _padding(programs: Sequence[ProgramFacts], call: CallFacts) -> Reason | None:
    """Return the reason for gears that ran with larger arguments than the caller's."""
    padded = [facts for facts in programs if facts.calls and facts.padded]
    if not padded:
        return None
    names = ", ".join(facts.name for facts in padded)
    text = f"padding: arguments were enlarged to a gear ({names}); declare one that is nearer"
    return Reason("padding", call.kernels * max(facts.padded for facts in padded), text)
