"""Programs lowered and not compiled, for who has their kernels compiled elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from kernelmill.compiler.linking import LoweredProgram, with_super_kernels
from kernelmill.core.dataclass import dataclass
from kernelmill.core.machine import Machine
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.plan.verifier import verify_plan

Sink = Callable[[LoweredProgram, Machine], None]
"""Gets each program after lowering, and what it was lowered for."""

_sink: ContextVar[Sink | None] = ContextVar("sink", default=None)


@contextmanager
def collecting(sink: Sink) -> Generator[None]:
    """Inside, this thread of control compiles nothing: what would be goes to `sink`, for whatever
    target it is, and is run in eager."""
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)


def is_collecting() -> bool:
    """Whether this is inside `collecting`."""
    return _sink.get() is not None


@dataclass(frozen=True, eq=False)
class CollectedProgram:
    """What stands for a program that was not compiled."""

    graph: Graph

    def call(self, *arguments: Any) -> list[Any]:
        """Its results, by eager operators."""
        return run_graph(self.graph, arguments)


def collect(drafts: Iterable[LoweredProgram], machine: Machine) -> list[CollectedProgram]:
    """Give each draft, with its super kernels, to the sink. Raises VerificationError for a plan
    that lowering got wrong."""
    sink = _sink.get()
    assert sink is not None
    found: list[CollectedProgram] = []
    for draft in drafts:
        draft = with_super_kernels(draft, machine)
        verify_plan(draft.lowered.plan, "lowering")
        sink(draft, machine)
        found.append(CollectedProgram(draft.graph))
    return found
