"""Tuning: schedules of contractions and attentions chosen by measuring, once for each machine.

A choice is stored as an entry of type "Tuning". Its key is the text of the kernel with the cost
model's schedule, the machine and the number of threads; it has the schedule's label instead of
machine code. The rules of the store apply: it has checksums, one process measures while others
wait, and damaged entries are set aside and measured again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil

import torch

from kernelmill import codegen
from kernelmill.compiler.objects import key_of
from kernelmill.compiler.progress import ProgressLine
from kernelmill.core.dim import Dim, evaluate
from kernelmill.core.dtype import to_torch
from kernelmill.core.log import get_logger
from kernelmill.core.target.machine import Machine
from kernelmill.core.workers import Workers
from kernelmill.kernel.ir import Buffer, Kernel
from kernelmill.kernel.text import print_kernel
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.schedule.search import BY_MODEL, Tunable
from kernelmill.plan.ir import BufferKind, BufferSpec, KernelRef, Launch, Plan, TensorInput
from kernelmill.runtime.program import Program, load
from kernelmill.store.entry import NewEntry
from kernelmill.store.store import Store

TYPE = "Tuning"
_log = get_logger("compiler")

_GAIN = 0.97
"""Fraction of the cost model's time below which another schedule replaces its own."""

_HOPELESS = 1.3
"""Factor to the best time, after a few rounds, from which a schedule is dropped."""

_FEW_ROUNDS, _ROUNDS = 3, 8
_FINAL_ROUNDS = 8
"""Rounds of the cost model's schedule and the best one alone, lest one good turn decides."""

_COLD_BYTES = 64 << 20
_MOST_COPIES = 16
"""Operands are measured cold, as after the weights of other layers: the launches of a round go over
copies of that size together, or that many."""

_ROUND_NS = 10_000_000
"""Estimated work of the launches of a round."""


class Tuner:
    """The schedule search of one compile. `measured` counts the schedules that were run for it,
    `settled` the kernels whose schedule it chose, or knew."""

    def __init__(self, store: Store, machine: Machine) -> None:
        self.store = store
        self.machine = machine
        self.measured = 0
        self.settled = 0
        self._offered = 0
        self._progress = ProgressLine(doing="tuning", what="schedules")

    def close(self) -> None:
        """Remove the line of progress."""
        self._progress.close()

    def pick(self, tunable: Tunable) -> str:
        """Return the label of the fastest schedule here; `lower.schedule.search.Pick`."""
        self.settled += 1
        key = key_of(
            self.machine.isa,
            tuning=print_kernel(tunable.kernel, name=False),
            threads=str(torch.get_num_threads()),
            machine=self.machine.caches,
        )
        label = self.store.get_or_compile(key, TYPE, lambda: self._tune(tunable)).object.decode()
        if label not in tunable.labels:  # of a version that had other schedules to offer
            label = self.store.put(key, TYPE, self._tune(tunable)).object.decode()
        return label

    def _tune(self, tunable: Tunable) -> NewEntry:
        times = self._times(tunable)
        self.measured += len(times)
        best = min(times, key=times.__getitem__)
        if times[best] > _GAIN * times[BY_MODEL]:
            best = BY_MODEL
        _log.info("tuned %s: %s, %s", tunable.kernel.type, best, times)
        info = {"op_info": {"Type": tunable.kernel.type, "attrs": {"schedule": best}}}
        return NewEntry(best.encode(), info, {"nanoseconds": times})

    def _times(self, tunable: Tunable) -> dict[str, int]:
        """Return nanoseconds of a launch by label."""
        kernels = [self._named(tunable, number) for number in range(len(tunable.labels))]
        self._offered += len(kernels)
        works = [partial(codegen.compile_kernel, kernel, self.machine.isa) for kernel in kernels]
        images: list[bytes] = []
        with Workers(len(os.sched_getaffinity(0))) as workers:
            for image in workers.results(works):
                images.append(image)
                self._progress.show(self.measured, self._offered)
        launches, arguments = _arguments(kernels, tunable)
        programs = {
            label: _program(kernel, image, tunable, launches)
            for label, kernel, image in zip(tunable.labels, kernels, images, strict=True)
        }
        times = _measure(programs, arguments, launches)
        self._progress.show(self.measured + len(times), self._offered)
        return times

    def _named(self, tunable: Tunable, number: int) -> Kernel:
        kernel = tunable.make(tunable.labels[number])
        verify_kernel(kernel, "lowering")
        return replace(kernel, name=f"candidate{number}")


def _number(dim: Dim) -> int:
    return evaluate(dim, {})


def _bytes(buffer: Buffer) -> int:
    return _number(buffer.elements) * buffer.dtype.bytes


def _operands(kernel: Kernel, tunable: Tunable) -> list[Buffer]:
    """Return the kernel's buffers without the status word."""
    return [b for n, b in enumerate(kernel.buffers) if n not in tunable.status]


def _arguments(kernels: Sequence[Kernel], tunable: Tunable) -> tuple[int, list[list[torch.Tensor]]]:
    """Return the launches in a round, and for each of a kernel's buffers a tensor a launch.

    Panels of packed weights differ in size from schedule to schedule: the largest serves all.
    """
    every = [[_bytes(buffer) for buffer in _operands(k, tunable)] for k in kernels]
    sizes = [max(sizes) for sizes in zip(*every, strict=True)]
    work = max(1, _number(tunable.work))
    launches = min(_MOST_COPIES, ceil(_COLD_BYTES / max(1, sum(sizes))), ceil(_ROUND_NS / work))
    generator = torch.Generator().manual_seed(0)
    found: list[list[torch.Tensor]] = []
    for buffer, size in zip(_operands(kernels[0], tunable), sizes, strict=True):
        own: list[torch.Tensor] = []
        for _ in range(launches):
            memory = torch.zeros(size // buffer.dtype.bytes, dtype=to_torch(buffer.dtype))
            if buffer.dtype.is_float and buffer.dtype.bits >= 16:
                memory.normal_(generator=generator)
            own.append(memory)
        found.append(own)
    return launches, found


def _program(kernel: Kernel, image: bytes, tunable: Tunable, launches: int) -> Program:
    """Return a program of many launches of the kernel, each on buffers of its own."""
    inputs: list[TensorInput] = []
    buffers: list[BufferSpec] = []
    numbers: list[list[int]] = [[] for _ in range(launches)]
    for position, buffer in enumerate(kernel.buffers):
        for launch in numbers:
            if position in tunable.status:
                launch.append(-1)
                continue
            launch.append(len(buffers))
            shape = (_number(buffer.elements),)
            name = f"{buffer.name}_{len(inputs)}"
            buffers.append(BufferSpec(BufferKind.INPUT, buffer.dtype, shape, (1,), len(inputs)))
            written = buffer.access != "in"
            inputs.append(TensorInput(name, buffer.dtype, shape, (1,), updated=written))
    steps = tuple(
        Launch(kernel.name, tuple(own), (), kernel.tasks, kernel.scratch, tunable.work)
        for own in numbers
    )
    plan = Plan(
        "trial", (), tuple(inputs), tuple(buffers), (), steps, (),
        (KernelRef(kernel.name, kernel.type, kernel.name),),
        checks=("",) if tunable.status else (),
    )  # fmt: skip
    return load(plan, {kernel.name: image})


_Calls = Mapping[str, tuple[Program, list[torch.Tensor]]]


def _measure(
    programs: Mapping[str, Program], arguments: list[list[torch.Tensor]], launches: int
) -> dict[str, int]:
    """Return the minimum of several alternating rounds, on all threads; slow ones leave early."""
    calls = {label: (each, _fitting(each, arguments)) for label, each in programs.items()}
    times = _rounds(calls, _FEW_ROUNDS)
    least = min(times.values())
    good = {label: calls[label] for label, spent in times.items() if spent <= _HOPELESS * least}
    times |= _rounds(good, _ROUNDS - _FEW_ROUNDS)
    best = min(times, key=times.__getitem__)
    times |= _rounds({label: calls[label] for label in (BY_MODEL, best)}, _FINAL_ROUNDS)
    return {label: spent // launches for label, spent in times.items()}


def _rounds(calls: _Calls, count: int) -> dict[str, int]:
    """Return nanoseconds of a call, the minimum of so many after one to warm up."""
    times = dict.fromkeys(calls, sys.maxsize)
    for number in range(count + 1):
        for label, (program, own) in calls.items():
            start = time.perf_counter_ns()
            program.call(*own)
            spent = time.perf_counter_ns() - start
            if number:
                times[label] = min(times[label], spent)
    return times


def _fitting(program: Program, arguments: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    memory = [tensor for own in arguments for tensor in own]
    sizes = [_number(spec.shape[0]) for spec in program.plan.buffers]
    return [tensor[:size] for tensor, size in zip(memory, sizes, strict=True)]
