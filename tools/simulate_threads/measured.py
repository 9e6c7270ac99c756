"""Steps of a compiled model, with the time of each on one thread."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelmill.backend.entry import Backend
from kernelmill.compiler.linking import Compiled
from kernelmill.core.dim import evaluate, product
from kernelmill.core.dtype import InputRole
from kernelmill.inference import finish_packing
from kernelmill.plan.ir import AtenCall, BufferKind, Launch, Plan, TensorInput, whole_launch
from kernelmill.report.gather import program_facts
from kernelmill.report.measuring import record
from kernelmill.runtime.program import Program
from tools.simulate_threads.schedule import Costs, Serial, Step, Work


@dataclass
class Model:
    """A compiled model: the steps of a call, and calls of it. `outside` is the time before, between
    and after the steps."""

    steps: list[Step]
    outside: float
    call: Callable[[], object]

    @property
    def alone(self) -> float:
        """The time of a call on one thread, as added up."""
        return self.outside + sum(step.time for step in self.steps)


class _Calls:
    """A backend that remembers the calls of a model's graphs: Dynamo would compile again for
    another number of threads."""

    def __init__(self) -> None:
        self.made: list[Compiled[Program]] = []
        self._calls: dict[int, Callable[[], object]] = {}
        self._backend = Backend(on_compiled=self.made.append)

    def __call__(self, module: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        compiled, number = self._backend(module, examples), len(self._calls)

        def call(*args: Any) -> Any:
            self._calls[number] = lambda: compiled(*args)
            return compiled(*args)

        self._calls[number] = lambda: None
        return call

    def again(self) -> None:
        """Call all graphs with the arguments of their last calls."""
        for call in self._calls.values():
            call()


def measured(model: Callable[..., Any], args: Sequence[Any], costs: Costs, calls: int) -> Model:
    """Compile a model for these arguments, and measure its launches in so many calls on one
    thread: the least time of each, and of what is between them."""
    torch.set_num_threads(1)
    backend = _Calls()
    compiled = torch.compile(model, backend=backend, dynamic=False)
    compiled(*args)
    finish_packing()
    backend.again()
    programs = [each.program for each in backend.made]
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    gaps: dict[int, float] = {}
    for one in record(backend.again, programs, calls):
        at = 0
        for number, span in enumerate(sorted(one.spans, key=lambda span: span.begin)):
            gaps[number] = min(span.begin - at, gaps.get(number, math.inf))
            at = max(at, span.end)
        gaps[-1] = min(one.time - at, gaps.get(-1, math.inf))
        spans: dict[tuple[int, int], float] = defaultdict(float)
        for span in one.spans:
            if not span.whole:
                spans[span.program, span.step] += span.end - span.begin
        for place, spent in spans.items():
            times[place].append(spent)
    least = {place: min(spent) for place, spent in times.items()}
    steps: list[Step] = []
    for number, each in enumerate(backend.made):
        own = {step: spent for (of, step), spent in least.items() if of == number and step >= 0}
        if own:  # it is called
            steps += steps_of(each, own, costs)
    return Model(steps, sum(gap for gap in gaps.values() if gap > 0), backend.again)


def _nanoseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    call()
    return float(time.perf_counter_ns() - start)


def steps_of(compiled: Compiled[Program], times: Mapping[int, float], costs: Costs) -> list[Step]:
    """Return the steps of a program, with these times by number."""
    plan, facts = compiled.program.plan, program_facts(compiled).steps
    lasting = {number for number in range(len(plan.buffers)) if _lasts(plan, number)}
    sizes = [evaluate(product(b.shape), {}) * b.dtype.bytes for b in plan.buffers]
    read = {n for step in plan.steps if isinstance(step, Launch) for n in step.buffers} & lasting
    from_memory = lasting if sum(sizes[n] for n in read) > costs.cache else set[int]()
    from_memory |= {n for n, size in enumerate(sizes) if size > costs.cache}

    def work(number: int, step: Launch) -> Work:
        moved = sum(sizes[n] for n in set(step.buffers) & from_memory)
        title = f"{number} {facts[number].template}, {' '.join(facts[number].operators[:4])}"
        return Work(
            title, evaluate(step.tasks, {}), times.get(number, 0.0), evaluate(step.work, {}),
            min(moved, facts[number].bytes or moved), step.order,
        )  # fmt: skip

    found: list[Step] = []
    ends = {fused.first: fused for fused in plan.supers}
    number = 0
    while number < len(plan.steps):
        step = plan.steps[number]
        if isinstance(step, AtenCall):
            found.append(Serial(f"{number} {step.target}", times.get(number, 0.0)))
        elif number in ends:
            fused, whole = ends[number], whole_launch(plan, ends[number])
            parts = tuple(
                work(at, one)
                for at, one in enumerate(plan.steps[: fused.last])
                if at >= fused.first and isinstance(one, Launch)
            )
            found.append(Work(
                f"{number} super kernel {fused.name}", evaluate(whole.tasks, {}),
                sum(part.time for part in parts), evaluate(whole.work, {}),
                sum(part.bytes for part in parts), fused=fused, parts=parts,
            ))  # fmt: skip
            number = fused.last - 1
        else:
            found.append(work(number, step))
        number += 1
    return found


def _lasts(plan: Plan, number: int) -> bool:
    """Return whether a buffer is a weight, packed or as it is."""
    spec = plan.buffers[number]
    if spec.kind == BufferKind.INPUT:
        entry = plan.inputs[spec.source]
        return isinstance(entry, TensorInput) and entry.role != InputRole.USER
    return spec.kind == BufferKind.PACKED


def measured_here(model: Model, counts: Sequence[int], calls: int) -> dict[int, float]:
    """Return the median time of a call with those numbers of threads that this machine has."""
    found: dict[int, float] = {}
    for threads in counts:
        if threads <= len(os.sched_getaffinity(0)):
            torch.set_num_threads(threads)
            model.call()
            found[threads] = statistics.median(_nanoseconds(model.call) for _ in range(calls))
    return found
