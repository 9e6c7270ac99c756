"""Measurements of calls in turns with eager, and of steps and threads in some of them."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from kernelmill.compiler.linking import Compiled
from kernelmill.core.dataclass import dataclass
from kernelmill.plan.ir import TensorInput
from kernelmill.report.facts import Bar, CallFacts, Explained, GraphCounts, ProgramFacts, Step
from kernelmill.report.gather import program_facts
from kernelmill.report.sums import reasons_of
from kernelmill.runtime import background
from kernelmill.runtime.program import Program
from kernelmill.runtime.recorder import Recorder, Span
from kernelmill.torch_internals.export import leaves_of
from kernelmill.torch_internals.modules import original_module

MOST_ROUNDS = 25
LEAST_ROUNDS = 3
SECONDS = 0.6
"""Time limit of the rounds of one call of each; and again for recorded calls."""

LONG_SECONDS = 5.0
"""Time after which fewer than the least rounds suffice."""

Run = Callable[[], object]
Report = TypeVar("Report", bound=Explained)


@dataclass(frozen=True)
class Recorded:
    """One recorded call: its spans, in nanoseconds from its beginning, and its time."""

    spans: tuple[Span, ...]
    time: int
    caller: int


def measured(
    report: Report,
    made: Sequence[Compiled[Program]],
    compiled: Callable[..., object],
    model: Callable[..., object],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Report:
    """Return the report with the facts of a call, and the times of the programs. An error of a call
    is one of the facts."""
    programs, given, before = [each.program for each in made], (args, kwargs), report.programs
    run, eager = (partial(each, *args, **kwargs) for each in (compiled, original_module(model)))
    try:
        with preserved(model, given, programs):
            _finish_packing(run, programs)
            before = tuple(map(program_facts, made))
            call, recorded = measure(run, eager, programs)
    except Exception as error:
        return replace(
            report, programs=before, call=CallFacts(error=f"{type(error).__name__}: {error}")
        )
    now = [_enlarged(program_facts(each), given) for each in made]
    call, timed = with_times(call, recorded, now)
    refused = sum(bool(capture.refused) for capture in report.captures)
    graphs = GraphCounts(len(report.captures), refused, report.graph_breaks)
    reasons = reasons_of(call, timed, report.machine, before, graphs)
    return replace(report, programs=timed, call=replace(call, reasons=reasons))


_MOST_CALLS_TO_PACK = 20
"""Limit on the calls that finish the first packing, each with a share of it."""


def _finish_packing(call: Run, programs: Sequence[Program]) -> None:
    """Call until all weights are packed, so that later packing means a write to them."""
    for _ in range(_MOST_CALLS_TO_PACK):
        background.wait()
        if not any(program.report()["packing"] for program in programs):
            return
        call()


def _enlarged(facts: ProgramFacts, given: Any) -> ProgramFacts:
    """Return the facts with the padded part of the arguments, if it is one of several gears."""
    if not facts.gear:
        return facts
    leaves = [leaf for leaf in leaves_of(given) if isinstance(leaf, torch.Tensor)]
    elements = sum(leaf.numel() for leaf in leaves)
    return replace(facts, padded=max(0.0, 1 - elements / max(1, facts.argument_elements)))


def measure(
    compiled: Run, eager: Run, programs: Sequence[Program]
) -> tuple[CallFacts, list[Recorded]]:
    """Measure both in turns, then recorded calls. Raises the errors of the calls."""
    for run in (compiled, eager):
        run()
    times: list[tuple[int, int]] = []
    start, others = time.perf_counter(), OtherWork()
    while len(times) < MOST_ROUNDS:
        times.append((_time(compiled), _time(eager)))
        spent = time.perf_counter() - start
        if spent > (SECONDS if len(times) >= LEAST_ROUNDS else LONG_SECONDS):
            break
    ours, theirs = zip(*times, strict=True)
    call = CallFacts(
        len(times), statistics.median(ours), statistics.median(theirs),
        least_compiled=min(ours), least_eager=min(theirs), other_work=others.share(),
    )  # fmt: skip
    return call, record(compiled, programs, len(times))


def record(run: Run, programs: Sequence[Program], count: int) -> list[Recorded]:
    """Record so many calls with the times of all steps, after one that is not counted."""
    found: list[Recorded] = []
    with Recorder([program.engine for program in programs]) as recorder:
        for _ in range(count + 1):
            begin = time.perf_counter_ns()
            run()
            end = time.perf_counter_ns()
            spans = tuple(
                replace(span, begin=span.begin - begin, end=span.end - begin)
                for span in recorder.take()
                if begin <= span.begin and span.end <= end
            )
            found.append(Recorded(spans, end - begin, threading.get_ident()))
    return found[1:]


def _time(run: Run) -> int:
    begin = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin


@contextmanager
def preserved(model: object, tensors: Any, programs: Sequence[Program]) -> Generator[None]:
    """Restore torch's random numbers afterwards, and the arguments and buffers of the model where a
    program writes to one of its inputs."""
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    if any(
        isinstance(entry, TensorInput) and entry.updated
        for program in programs
        for entry in program.plan.inputs
    ):
        owned = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
        held = [*owned, *leaves_of(tensors)]
        kept = [(each, each.detach().clone()) for each in held if _is_plain(each)]
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        with torch.no_grad():
            for tensor, before in kept:
                if not torch.equal(tensor, before):
                    tensor.copy_(before)


def _is_plain(tensor: object) -> bool:
    """Return whether a tensor has elements in memory that can be compared and restored."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and cast(torch.Tensor, tensor).layout == torch.strided


# ---- times from spans ----------------------------------------------------------------------------


def with_times(
    call: CallFacts, recorded: Sequence[Recorded], programs: Sequence[ProgramFacts]
) -> tuple[CallFacts, tuple[ProgramFacts, ...]]:
    """Return the facts with the medians of recorded calls, and the timeline of the one whose time
    is nearest to the median of calls."""
    if not recorded:
        return call, tuple(programs)
    each = [_RecordedCall(one, programs) for one in recorded]
    timed = tuple(_timed(number, facts, each) for number, facts in enumerate(programs))
    # Other load on the machine interrupts calls: those say nothing.
    middle = min(recorded, key=lambda one: abs(one.time - (call.compiled or 0.0)))
    names, bars = timeline(middle)
    parts = _RecordedCall(middle, programs)
    return replace(
        call,
        recorded=float(middle.time),
        kernels=parts.kernels,
        aten=parts.aten,
        between=parts.between,
        outside=parts.outside,
        threads=names,
        timeline=bars,
    ), timed


def timeline(recorded: Recorded) -> tuple[tuple[str, ...], tuple[Bar, ...]]:
    """Return the threads of a call, the caller first, and their work."""
    order = dict.fromkeys([recorded.caller, *(span.thread for span in recorded.spans)])
    numbers = {thread: number for number, thread in enumerate(order)}
    names = tuple("caller" if n == 0 else f"worker {n}" for n in numbers.values())
    return names, tuple(
        Bar(numbers[s.thread], s.program, s.step, s.whole, s.begin, s.end, s.tasks)
        for s in recorded.spans
    )


class _RecordedCall:
    """Times within one recorded call. `steps` has the time of each step and the threads that worked
    on it, `wholes` the time of super kernels, by program and step."""

    def __init__(self, recorded: Recorded, programs: Sequence[ProgramFacts]) -> None:
        groups: dict[tuple[int, int, bool], list[Span]] = defaultdict(list)
        for span in recorded.spans:
            groups[span.program, span.step, span.whole].append(span)
        self.steps = {
            key[:2]: (_covered(spans), len({span.thread for span in spans}))
            for key, spans in groups.items()
            if not key[2]
        }
        self.wholes = {key[:2]: _covered(spans) for key, spans in groups.items() if key[2]}
        self.calls = _calls(groups)
        inside = {
            (number, step)
            for number, facts in enumerate(programs)
            for whole in facts.supers
            for step in range(whole.first, whole.last)
        }
        self.kernels = float(sum(self.wholes.values()))
        self.aten = 0.0
        for (number, step), (spent, _) in self.steps.items():
            if (number, step) in inside:
                continue
            if step >= 0 and programs[number].steps[step].kind == "aten":
                self.aten += spent
            else:
                self.kernels += spent
        busy = self.kernels + self.aten
        extent = sum(_extent(recorded.spans, number) for number in range(len(programs)))
        self.between = max(0.0, extent - busy) if max(self.calls.values(), default=0) == 1 else 0.0
        self.outside = max(0.0, recorded.time - busy - self.between)


def _calls(groups: dict[tuple[int, int, bool], list[Span]]) -> dict[int, int]:
    """Return the runs of each program: the most that one thread did of one step."""
    found: dict[int, int] = {}
    for (program, step, _), spans in groups.items():
        if step >= 0:
            threads: dict[int, int] = defaultdict(int)
            for span in spans:
                threads[span.thread] += 1
            found[program] = max(found.get(program, 0), *threads.values())
    return found


def _extent(spans: Sequence[Span], program: int) -> int:
    own = [span for span in spans if span.program == program]
    return max(s.end for s in own) - min(s.begin for s in own) if own else 0


def _covered(spans: Sequence[Span]) -> int:
    """Return the time from the first beginning to the last end, without pauses of all threads."""
    threads = [span.thread for span in spans]
    if len(threads) == len(set(threads)):
        return max(s.end for s in spans) - min(s.begin for s in spans)
    total, until = 0, 0
    for span in sorted(spans, key=lambda span: span.begin):
        total += max(0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


def _timed(number: int, facts: ProgramFacts, calls: Sequence[_RecordedCall]) -> ProgramFacts:
    counts = [call.calls.get(number, 0) for call in calls]
    steps = tuple(_timed_step(number, step, calls) for step in facts.steps)
    supers = tuple(
        replace(whole, time=_median(call.wholes.get((number, whole.first)) for call in calls))
        for whole in facts.supers
    )
    return replace(facts, steps=steps, supers=supers, calls=round(statistics.median(counts)))


def _timed_step(number: int, step: Step, calls: Sequence[_RecordedCall]) -> Step:
    found = [
        call.steps[number, step.number] for call in calls if (number, step.number) in call.steps
    ]
    if not found:
        return step
    threads = round(statistics.median(threads for _, threads in found))
    return replace(step, time=_median(spent for spent, _ in found), threads=threads)


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return float(statistics.median(known)) if known else None


STAT = Path("/proc/stat")
_IDLE = slice(3, 5)
_COUNTED = 8  # guests are counted as users too (proc(5))


class OtherWork:
    """A measurement, from now on, of the processors that this process may run on."""

    def __init__(self) -> None:
        self._begin = _times()

    def share(self) -> float | None:
        """Return the part of their time that was neither this process's nor idle; None where the
        system does not report it."""
        if self._begin is None or (end := _times()) is None:
            return None
        total, busy, own = (b - a for a, b in zip(self._begin, end, strict=True))
        return min(1.0, max(0.0, busy - own) / total) if total > 0 else None


def _times() -> tuple[float, float, float] | None:
    """Return seconds: all of the processors, those that were not idle, and this process's."""
    try:
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in STAT.read_text().splitlines()]
        found = [list(map(int, words[1:][:_COUNTED])) for words in lines if words[0] in ours]
    except (OSError, ValueError, IndexError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    total, idle = sum(map(sum, found)), sum(sum(numbers[_IDLE]) for numbers in found)
    return total / ticks, (total - idle) / ticks, time.process_time()
