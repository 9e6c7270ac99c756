"""Everything about a program that depends on its symbols' values, worked out once for each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from kernelmill.core.dtype import to_torch
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Plan, Step
from kernelmill.runtime.allocation import Allocate, elements_of, empty_strided
from kernelmill.runtime.dims import DimTable, Values
from kernelmill.runtime.results import LARGE_BYTES, result_tensor

Output = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(frozen=True, eq=False)
class Sizes:
    """`values` is the array that native tables index. `outputs` are shape, strides (in elements)
    and dtype of the plan's tensor buffers by number; those over symbols that have no value yet are
    not among them; `allocate` makes tensors of them. `scratch_bytes` is what each thread needs.
    `table` is the address of the native table that these sizes are for.
    """

    values: Values
    symbols: Mapping[str, int]
    outputs: Mapping[int, Output]
    arena_bytes: int
    scratch_bytes: int
    table: int
    allocate: Allocate = empty_strided


def work_out(plan: Plan, dims: DimTable, symbols: Mapping[str, int], table: int) -> Sizes:
    """The sizes for these values. InputError when a value is outside its symbol's range."""
    values = dims.values(symbols)
    outputs = {
        number: output_of(buffer, dims, values)
        for number, buffer in enumerate(plan.buffers)
        if buffer.kind == BufferKind.TENSOR and not dims.is_late((*buffer.shape, *buffer.strides))
    }
    arena = values[dims.number(plan.arena_bytes)]
    # Calls that stream (streaming.py) prepare in their own scratch.
    scratch = scratch_bytes((*plan.steps, *plan.prepare), dims, values)
    large = any(elements_of(s, t) * d.itemsize >= LARGE_BYTES for s, t, d in outputs.values())
    allocate = result_tensor if large else empty_strided
    return Sizes(values, dict(symbols), outputs, arena, scratch, table, allocate)


def for_prepare(plan: Plan, dims: DimTable, table: int) -> Sizes:
    """The sizes for prepare steps, which know no symbols."""
    values = dims.constant_values()
    return Sizes(values, {}, {}, 0, scratch_bytes(plan.prepare, dims, values), table)


def output_of(buffer: BufferSpec, dims: DimTable, values: Values) -> Output:
    """What the tensor of a buffer looks like."""
    return (*dims.layout(buffer, values), to_torch(buffer.dtype))


def scratch_bytes(steps: Sequence[Step], dims: DimTable, values: Values) -> int:
    """The scratch memory that each thread needs for any of these steps."""
    launches = (step for step in steps if isinstance(step, Launch))
    most = max((values[dims.number(launch.scratch)] for launch in launches), default=0)
    return -(-most // ALIGNMENT) * ALIGNMENT
