"""Benchmark of two programs for the same operator."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import to_torch
from kernelmill.graph.ir import Graph
from kernelmill.lower.elements.strided import span
from kernelmill.plan.ir import TensorResult
from kernelmill.runtime.calls.caller import ProgramResult
from kernelmill.runtime.program import Program

_ROUNDS = 7
_ROUND_NS = 200_000
"""Time in which a round repeats short launches; a long launch is a round by itself."""


def example_arguments(graph: Graph) -> list[torch.Tensor]:
    """Return tensors for a graph without symbols: random floats, and zeros, valid indices.

    torch's own random numbers are left alone.
    """
    generator = torch.Generator().manual_seed(0)
    found: list[torch.Tensor] = []
    for entry in graph.tensor_inputs():
        kind = entry.value.type
        shape = tuple(evaluate(size, {}) for size in kind.shape)
        strides = tuple(evaluate(stride, {}) for stride in kind.memory_strides)
        memory = torch.zeros(evaluate(span(shape, strides), {}), dtype=to_torch(kind.dtype))
        if kind.dtype.is_float and kind.dtype.bits >= 16:
            memory.normal_(generator=generator)
        found.append(memory.as_strided(shape, strides))
    return found


def compare(first: Program, second: Program, arguments: list[torch.Tensor]) -> tuple[float, float]:
    """Return nanoseconds of the launches of a call, for both: the minimum of several alternating
    rounds, on one thread. The rest of a call is the same for both and much longer than short
    kernels. More threads would measure how busy the machine is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = first.call(*arguments)
        second.call(*arguments)
        _write_to(second, results)  # where the memory lies is no merit of a kernel
        calls = min(_calls(first), _calls(second))
        rounds = [(_round(first, calls), _round(second, calls)) for _ in range(_ROUNDS)]
    finally:
        torch.set_num_threads(threads)
    del results  # until here the launches wrote there
    return min(one for one, _ in rounds), min(other for _, other in rounds)


def _write_to(program: Program, results: Sequence[ProgramResult]) -> None:
    """Let a program write its results to the memory of the other program's."""
    (frame,) = program.engine.pool.frames
    for result, tensor in zip(program.plan.results, results, strict=True):
        assert isinstance(result, TensorResult) and isinstance(tensor, torch.Tensor)
        frame.set_address(result.buffer, tensor.data_ptr())


def _calls(program: Program) -> int:
    calls, taken = 1, _round(program, 1)
    while calls * taken < _ROUND_NS / 4:
        calls *= 4
        taken = _round(program, calls)
    return max(1, round(_ROUND_NS / taken))


def _round(program: Program, calls: int) -> float:
    """Return the mean time of so many calls on this thread, apart from other load."""
    start = time.thread_time_ns()
    program.launch_again(calls)
    return (time.thread_time_ns() - start) / calls
