"""What the time of a call goes to: how much shorter it is without the launches of one kernel."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from kernelmill.backend.entry import Backend
from kernelmill.compiler.linking import Compiled, LoweredProgram
from kernelmill.compiler.objects import obtain, requests_of
from kernelmill.compiler.trial import example_arguments
from kernelmill.core.target.machine import host
from kernelmill.plan.ir import Launch, Plan
from kernelmill.runtime.program import Program, load
from kernelmill.store.store import open_store
from tools.bench.subject import Subject

_LEAST = 0.01
"""Kernels with less than this part of a call are left out."""

_TURNS = 9
_TURN_SECONDS = 0.01

Line = list[Any]
"""Kernel, its operators, launches in a call, seconds of a call, part of a call."""


def profile(subject: Subject) -> list[Line]:
    """The kernels of the model's largest graph that matter, the longest first."""
    torch._dynamo.reset()
    made: list[Compiled[Any]] = []
    backend = Backend(on_compiled=made.append)
    with torch.no_grad(), subject.settings():
        torch.compile(subject.case.model, backend=backend, dynamic=False)(*subject.args)
    draft = max((each.draft for each in made), key=lambda each: len(each.lowered.plan.steps))
    plan = draft.lowered.plan
    launches = Counter(step.kernel for step in plan.steps if isinstance(step, Launch))
    programs: dict[str, Program] = {"": _program(draft, plan)}
    for kernel in launches:
        programs[kernel] = _program(draft, _without(plan, kernel))
    seconds = _seconds(programs, example_arguments(draft.graph))
    whole = seconds[""]
    operators = {ref.name: " ".join(ref.operators) for ref in plan.kernels}
    lines: list[Line] = [
        [name, operators[name], count, whole - seconds[name], (whole - seconds[name]) / whole]
        for name, count in launches.items()
    ]
    return sorted((line for line in lines if line[4] >= _LEAST), key=lambda line: -line[4])


def _without(plan: Plan, kernel: str) -> Plan:
    """Its launches have no tasks."""
    steps = tuple(
        replace(step, tasks=0) if isinstance(step, Launch) and step.kernel == kernel else step
        for step in plan.steps
    )
    return replace(plan, steps=steps, supers=())


def _program(draft: LoweredProgram, plan: Plan) -> Program:
    store = open_store()
    kernels = draft.lowered.kernels
    entries = obtain(requests_of(draft.lowered.plan, kernels), store, host().isa)
    return load(plan, {name: entry.object for name, entry in entries.items()})


def _seconds(programs: dict[str, Program], arguments: list[torch.Tensor]) -> dict[str, float]:
    """Medians of turns."""
    for program in programs.values():
        program.call(*arguments)
    calls = {name: _calls(program, arguments) for name, program in programs.items()}
    turns: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(_TURNS):
        for name, program in programs.items():
            turns[name].append(_turn(program, arguments, calls[name]))
    return {name: statistics.median(times) for name, times in turns.items()}


def _calls(program: Program, arguments: list[torch.Tensor]) -> int:
    return max(1, int(_TURN_SECONDS / _turn(program, arguments, 1)))


def _turn(program: Program, arguments: list[torch.Tensor], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        program.call(*arguments)
    return (time.perf_counter() - start) / calls
