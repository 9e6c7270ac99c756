"""Which of two programs for the same operator is the faster one."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import to_torch
from kernelmill.graph.ir import Graph
from kernelmill.lower.storage import span
from kernelmill.plan.ir import Launch, Plan
from kernelmill.runtime.program import Program

REPEATS = 16
"""So many launches in one call of a short operator, lest the call is what is measured."""

_SHORT_NS = 50_000
_ROUNDS = 7
_ROUND_NS = 200_000
"""A round repeats short calls until they have taken so long; a long call is a round."""


def example_arguments(graph: Graph) -> list[torch.Tensor]:
    """Tensors for a graph without symbols: random floats, and zeros, which are valid indices.

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


def repeated(plan: Plan) -> Plan:
    """The plan, its launches repeated where they are short: they write the same again."""
    work = sum(evaluate(step.work, {}) for step in plan.steps if isinstance(step, Launch))
    return replace(plan, steps=plan.steps * REPEATS) if work < _SHORT_NS else plan


def compare(first: Program, second: Program, arguments: list[torch.Tensor]) -> tuple[int, int]:
    """Nanoseconds a call takes, of both: the least of several rounds in turns, on one thread.

    More threads would measure how busy the machine is.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        slower = max(_round(program, arguments, 1) for program in (first, second, first, second))
        calls = max(1, _ROUND_NS // max(1, slower))
        rounds = [
            (_round(first, arguments, calls), _round(second, arguments, calls))
            for _ in range(_ROUNDS)
        ]
    finally:
        torch.set_num_threads(threads)
    return min(one for one, _ in rounds), min(other for _, other in rounds)


def _round(program: Program, arguments: list[torch.Tensor], calls: int) -> int:
    """The mean of so many calls."""
    call = program.call
    start = time.perf_counter_ns()
    for _ in range(calls):
        call(*arguments)
    return (time.perf_counter_ns() - start) // calls
