"""Reasons for the time of a call, by parts of it."""

from __future__ import annotations

from collections.abc import Sequence

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
from kernelmill.report.sums import time_of, timed_steps

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
    kept = [reason for reason in found if reason is not None and reason.time >= least]
    return tuple(sorted(kept, key=lambda reason: -reason.time))


def _run(steps: Sequence[Step], noun: str) -> str:
    return f"{counted(len(steps), noun)} run{'s' * (len(steps) == 1)}"


def _fallbacks(call: CallFacts, programs: Sequence[ProgramFacts]) -> Reason | None:
    aten = [step for step in timed_steps(programs) if step.kind == "aten"]
    if not aten:
        return None
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


def _memory_bound(programs: Sequence[ProgramFacts]) -> Reason | None:
    bound = [s for s in timed_steps(programs) if s.bound == "bytes" and (s.share or 0.0) >= _NEAR]
    if not bound:
        return None
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
    if not few:
        return None
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
