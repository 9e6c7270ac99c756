"""Everything about a program that depends on its symbols' values, worked out once for each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelmill.core.dim import Dim
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.plan.ir import Launch, Plan
from kernelmill.runtime.dims import DimTable, Layout, Values


@dataclass(frozen=True, eq=False)
class Sizes:
    """`values` is the array that native tables index; `tensors` the layouts of tensor buffers.

    `scratch_bytes` is what each thread needs.
    """

    values: Values
    symbols: Mapping[str, int]
    tensors: Mapping[int, Layout]
    arena_bytes: int
    scratch_bytes: int


def work_out(plan: Plan, dims: DimTable, symbols: Mapping[str, int]) -> Sizes:
    """The sizes for these values. InputError when a value is outside its symbol's range."""
    values = dims.values(symbols)

    def read(wanted: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(values[number] for number in dims.numbers(wanted))

    launches = [step for step in (*plan.steps, *plan.prepare) if isinstance(step, Launch)]
    scratch = max(read([launch.scratch for launch in launches]), default=0)
    tensors = {
        number: dims.layout(buffer, values)
        for number, buffer in enumerate(plan.buffers)
        if buffer.kind == "tensor"
    }
    (arena,) = read([plan.arena_bytes])
    return Sizes(values, dict(symbols), tensors, arena, -(-scratch // ALIGNMENT) * ALIGNMENT)
