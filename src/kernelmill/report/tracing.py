"""A call as a trace for Perfetto and chrome://tracing: a track for each thread.

Format: Google's "Trace Event Format", complete events ("X") with times in microseconds, and
metadata events ("M") with names.
"""

from __future__ import annotations

from typing import Any

from kernelmill.report.facts import Bar, Explained, Step

_PROCESS = 1


def trace_of(explanation: Explained) -> dict[str, Any]:
    """Return the JSON document of the report's timeline; without events if nothing was measured."""
    call = explanation.call
    events: list[dict[str, Any]] = [_named("process_name", 0, explanation.name or "kernelmill")]
    for number, name in enumerate(call.threads):
        events.append(_named("thread_name", number, name))
        events.append(
            {"ph": "M", "name": "thread_sort_index", "pid": _PROCESS, "tid": number,
             "args": {"sort_index": number}}
        )  # fmt: skip
    events += [_event(explanation, bar) for bar in call.timeline]
    machine = explanation.machine
    about = {} if machine is None else {"processor": machine.processor, "isa": machine.isa}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _event(explanation: Explained, bar: Bar) -> dict[str, Any]:
    facts = explanation.programs[bar.program]
    if bar.step < 0:
        name, category, args = "pack weights", "packing", dict[str, Any]()
    elif bar.whole:
        made = next(whole for whole in facts.supers if whole.first == bar.step)
        name, category = made.name, "super kernel"
        args = {"scope": made.scope, "sub-kernels": made.last - made.first}
    else:
        step = facts.steps[bar.step]
        name, category, args = step.title, step.kind, _arguments(step, bar)
    return {
        "ph": "X", "name": name, "cat": category, "pid": _PROCESS, "tid": bar.thread,
        "ts": bar.begin / 1000, "dur": (bar.end - bar.begin) / 1000,
        "args": {"program": facts.name, **args},
    }  # fmt: skip


def _arguments(step: Step, bar: Bar) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": step.number,
        "operators": " ".join(step.operators),
        "reads": [f"{use.what}: {use.tensor}" for use in step.reads],
        "writes": [use.tensor for use in step.writes],
        "bytes": step.bytes,
        "operations": step.operations,
        "origin": step.origin,
    }
    if step.kind == "kernel":
        found["tasks"] = f"{bar.tasks} of {step.tasks}"
    else:
        found["reason"] = step.reason
    return found
