"""Everything about a program that depends on its symbols' values, worked out once for each set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

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


class SizesOf:
    """Works out the sizes of one program: what is where among the values is found once."""

    def __init__(self, plan: Plan, dims: DimTable, table: int) -> None:
        self._dims, self._table = dims, table
        self._outputs = [
            (number, *map(_picker, dims.layout_numbers(buffer)), to_torch(buffer.dtype))
            for number, buffer in enumerate(plan.buffers)
            if buffer.kind == BufferKind.TENSOR
            and not dims.is_late((*buffer.shape, *buffer.strides))
        ]
        # Calls that stream (streaming.py) prepare in their own scratch.
        self._scratch = _scratch_numbers((*plan.steps, *plan.prepare), dims)
        self._arena = dims.number(plan.arena_bytes)

    def __call__(self, symbols: Mapping[str, int]) -> Sizes:
        """The sizes for these values. InputError when a value is outside its symbol's range."""
        values = self._dims.values(symbols)
        numbers = values[:]
        outputs = {
            number: (shape(numbers), strides(numbers), dtype)
            for number, shape, strides, dtype in self._outputs
        }
        most = max((numbers[number] for number in self._scratch), default=0)
        large = any(
            elements_of(s, t) * d.itemsize >= LARGE_BYTES for s, t, d in {*outputs.values()}
        )
        return Sizes(
            values, dict(symbols), outputs, numbers[self._arena], _aligned(most), self._table,
            result_tensor if large else empty_strided,
        )  # fmt: skip


Pick = Callable[[Sequence[int]], tuple[int, ...]]


def _picker(numbers: Sequence[int]) -> Pick:
    """Gives what stands at these places."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda values: tuple([values[number] for number in numbers])


def for_prepare(plan: Plan, dims: DimTable, table: int) -> Sizes:
    """The sizes for prepare steps, which know no symbols."""
    values = dims.constant_values()
    return Sizes(values, {}, {}, 0, scratch_bytes(plan.prepare, dims, values), table)


def output_of(buffer: BufferSpec, dims: DimTable, values: Values) -> Output:
    """What the tensor of a buffer looks like."""
    return (*dims.layout(buffer, values), to_torch(buffer.dtype))


def scratch_bytes(steps: Sequence[Step], dims: DimTable, values: Values) -> int:
    """The scratch memory that each thread needs for any of these steps."""
    return _aligned(max((values[n] for n in _scratch_numbers(steps, dims)), default=0))


def _scratch_numbers(steps: Sequence[Step], dims: DimTable) -> list[int]:
    return sorted({dims.number(step.scratch) for step in steps if isinstance(step, Launch)})


def _aligned(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT
