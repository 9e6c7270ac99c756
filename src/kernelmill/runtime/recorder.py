"""Records of kernel runs: time and thread, of programs while a `Recorder` is active.

Kernels are timed by probes before them (probes.py), ATen calls by the step that makes them. The
clock is `time.perf_counter_ns`'s, and a probe adds about 60 ns to its call.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.plan.ir import AtenCall, sub_launches
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.layout import pointer
from kernelmill.runtime.probes import CallRecord, Kind, LogHeader, Probes, call_sites

_LEAST_ROOM = 4096
_CALLS = 8
"""Most calls of all programs that fit into the log between two readings."""

_POINTER_BYTES = ctypes.sizeof(pointer)


@dataclass(frozen=True)
class Span:
    """The work of one thread on one step of a program, in nanoseconds of `time.perf_counter_ns`.

    program  number of the engine among those that are recorded
    step     number in `plan.steps`; of launches of `plan.prepare` -1 - their number there. A
             super kernel as a whole has that of its first launch
    whole    true for a super kernel as a whole, with its waiting
    tasks    number of the launch's tasks; 0 for an ATen call and for a super kernel
    thread   as `threading.get_ident` has it
    """

    program: int
    step: int
    whole: bool
    tasks: int
    thread: int
    begin: int
    end: int


class Recorder:
    """A recorder of calls of `engines` between `__enter__` and `__exit__`. `take` returns the spans
    since the last `take`, in the order in which they began. Other callers' calls are recorded too.

    CodegenError when this torch or C library lacks the functions that probes call.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._sites = [(n, site) for n, engine in enumerate(engines) for site in call_sites(engine)]
        self._inside = [_inside(engine) for engine in engines]
        self._supers = [{s.name for s in engine.plan.supers} for engine in engines]
        room = _LEAST_ROOM + _CALLS * (os.cpu_count() or 1) * len(self._sites)
        self._records = (CallRecord * room)()
        self._log = LogHeader(0, room, ctypes.addressof(self._records))
        log = ctypes.addressof(self._log)
        numbers = {own: number for number, own in enumerate(self._sites)}
        self._probes = [
            Probes(
                engine,
                Kind.RECORD,
                {site: (log, numbers[n, site]) for of, site in self._sites if of == n},
            )
            for n, engine in enumerate(engines)
        ]
        self._aten = [_AtenTimer(n, engine) for n, engine in enumerate(engines)]

    def __enter__(self) -> Recorder:
        for part in (*self._probes, *self._aten):
            part.put()
        return self

    def __exit__(self, *_: object) -> None:
        for part in (*self._probes, *self._aten):
            part.remove()
        _kept.append(self)  # another thread may be in the middle of a probe

    def take(self) -> list[Span]:
        """Return the spans since the last `take`. This thread must not be in a recorded call."""
        found = list(self._kernels(min(self._log.count, self._log.capacity)))
        for watched in self._aten:
            found += watched.take()
        self._log.count = 0
        return sorted(found, key=lambda span: (span.begin, -span.end))

    def _kernels(self, count: int) -> Iterator[Span]:
        records = sorted(self._records[:count], key=lambda r: (r.thread, r.begin, -r.end))
        whole: Any = None
        for record in records:
            program, site = self._sites[record.number]
            step = site.step
            if site.inside:
                if whole is None or whole.thread != record.thread:
                    continue  # the beginning did not fit into the log
                place = (record.buffers - whole.buffers) // _POINTER_BYTES
                step = self._inside[program][step, place]
            is_whole = site.kernel in self._supers[program]
            if is_whole:
                whole = record
            tasks = 0 if is_whole else record.last - record.first
            yield Span(
                program, step, is_whole, tasks, record.thread, record.begin, record.end
            )  # fmt: skip


_kept: list[Recorder] = []


def _inside(engine: Engine) -> dict[tuple[int, int], int]:
    """Return the steps of launches inside of super kernels, by the step of the first of these and
    the offset of their buffers among those of the whole."""
    plan = engine.plan
    found: dict[tuple[int, int], int] = {}
    for super_kernel in plan.supers:
        place = 1  # behind the lines
        for step, launch in enumerate(sub_launches(plan, super_kernel), super_kernel.first):
            found[super_kernel.first, place] = step
            place += len(launch.buffers)
    return found


class _AtenTimer:
    """A timer of the ATen calls of one program."""

    def __init__(self, program: int, engine: Engine) -> None:
        self._program, self._engine = program, engine
        self._spans: list[Span] = []
        self._operators: list[tuple[Any, Callable[..., object]]] = []

    def put(self) -> None:
        steps = self._engine.plan.steps
        numbers = [number for number, step in enumerate(steps) if isinstance(step, AtenCall)]
        for number, reference in zip(numbers, self._engine.aten_steps, strict=False):
            step = reference()
            if step is not None:
                self._operators.append((step, step.operator))
                step.operator = self._timed(number, step.operator)

    def remove(self) -> None:
        for step, operator in self._operators:
            step.operator = operator
        self._operators.clear()

    def take(self) -> Iterable[Span]:
        spans, self._spans = self._spans, []
        return spans

    def _timed(self, number: int, operator: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any, **kwargs: Any) -> object:
            begin = time.perf_counter_ns()
            try:
                return operator(*args, **kwargs)
            finally:
                end = time.perf_counter_ns()
                thread = threading.get_ident()
                self._spans.append(Span(self._program, number, False, 0, thread, begin, end))

        return call
