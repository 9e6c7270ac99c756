"""Sizes of a program that depend on its symbols' values, computed once for each set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, render, symbols
from kernelmill.core.dtype import to_torch
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Plan, Step
from kernelmill.runtime.memory.allocation import Allocate, elements_of, empty_strided
from kernelmill.runtime.memory.dims import DimTable, Values, late_symbols
from kernelmill.runtime.memory.results import LARGE_BYTES, result_tensor

Output = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(eq=False, slots=True)  # a frozen one takes three times as long to make
class Sizes:
    """Immutable sizes of a call. `values` is the array that native tables index. `outputs` are
    shape, strides (in elements) and dtype of the plan's tensor buffers by number; those over
    symbols that have no value yet are not among them; `allocate` makes tensors of them.
    `scratch_bytes` is what each thread needs. `table` is the address of the native table that these
    sizes are for."""

    values: Values
    symbols: Mapping[str, int]
    outputs: Mapping[int, Output]
    arena_bytes: int
    scratch_bytes: int
    table: int
    allocate: Allocate = empty_strided


class SizesOf:
    """Factory of the sizes of one program; the indices into the values are computed once."""

    def __init__(self, plan: Plan, dims: DimTable, table: int) -> None:
        self._dims, self._table = dims, table
        known = dims.constant_values()
        self._outputs: dict[int, Any] = {}  # in order; those that depend on symbols are None
        patterns: dict[object, _Pattern] = {}
        late = late_symbols(plan)
        order = [symbol.name for symbol in plan.symbols if symbol.name not in late]
        for number, buffer in enumerate(plan.buffers):
            every = (*buffer.shape, *buffer.strides)
            if buffer.kind != BufferKind.TENSOR or dims.is_late(every):
                continue
            found = dict.fromkeys(name for dim in every for name in symbols(dim))
            names = {name: f"s{n}" for n, name in enumerate(found)}
            self._outputs[number] = None if names else output_of(buffer, dims, known)
            if names:
                written = buffer.dtype, len(buffer.shape), *[render(dim, names) for dim in every]
                pattern = patterns.setdefault(written, _Pattern(to_torch(buffer.dtype)))
                places = [order.index(name) for name in names]
                pattern.add(number, places, dims.layout_numbers(buffer))
        self._patterns = list(patterns.values())
        self._large = any(_is_large(each) for each in self._outputs.values() if each is not None)
        # Calls that stream (streaming.py) prepare in their own scratch.
        scratch = _scratch((*plan.steps, *plan.prepare))
        self._least_scratch = max((dim for dim in scratch if isinstance(dim, int)), default=0)
        self._scratch = dims.numbers(dim for dim in scratch if not isinstance(dim, int))
        self._arena = dims.number(plan.arena_bytes)

    def __call__(self, symbols: Mapping[str, int]) -> Sizes:
        """Return the sizes for these values of symbols. InputError if one is outside its range."""
        symbols = self._dims.completed(symbols)
        values, given = self._dims.values(symbols), tuple(symbols.values())
        outputs, large = self._outputs.copy(), self._large
        for pattern in self._patterns:
            for output in pattern.fill(outputs, given, values):
                large = large or _is_large(output)
        most = max([self._least_scratch, *[values[number] for number in self._scratch]])
        return Sizes(
            values, symbols, outputs, values[self._arena], _aligned(most), self._table,
            result_tensor if large else empty_strided,
        )  # fmt: skip


class _Pattern:
    """Buffers of one dtype whose layouts are the same expressions but for the names of symbols.
    Where these have equal values, as those of a model's layers do, the layouts are equal."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._numbers: list[int] = []
        self._places: list[int] = []
        self._layouts: list[tuple[Pick, Pick]] = []

    def add(self, number: int, places: list[int], layout: tuple[list[int], list[int]]) -> None:
        """Add a buffer: its number, places of its symbols, indices of its shape and strides."""
        self._numbers.append(number)
        self._places += places
        self._layouts.append((_picker(layout[0]), _picker(layout[1])))
        self._pick, self._count = _picker(self._places), len(places)

    def fill(
        self, outputs: dict[int, Any], given: tuple[int, ...], values: Values
    ) -> Collection[Output]:
        """Put the layout of each of its buffers into `outputs`; return the distinct ones."""
        found: Sequence[Any] = self._pick(given)
        if (count := self._count) > 1:
            found = [found[n : n + count] for n in range(0, len(found), count)]
        made: dict[object, Output] = {}
        for key in set(found):
            shape, strides = self._layouts[found.index(key)]
            made[key] = shape(values), strides(values), self._dtype
        if len(made) == 1:
            outputs.update(dict.fromkeys(self._numbers, *made.values()))
        else:
            outputs.update(zip(self._numbers, map(made.__getitem__, found), strict=True))
        return made.values()


def _is_large(output: Output) -> bool:
    shape, strides, dtype = output
    return elements_of(shape, strides) * dtype.itemsize >= LARGE_BYTES


Pick = Callable[[Any], tuple[int, ...]]


def _picker(numbers: Sequence[int]) -> Pick:
    """Return a function that gives the values at these indices."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda values: tuple([values[number] for number in numbers])


def for_prepare(plan: Plan, dims: DimTable, table: int) -> Sizes:
    """Return the sizes for prepare steps, which use no symbols."""
    values = dims.constant_values()
    return Sizes(values, {}, {}, 0, scratch_bytes(plan.prepare, dims, values), table)


def output_of(buffer: BufferSpec, dims: DimTable, values: Values) -> Output:
    """Return shape, strides and dtype of a buffer's tensor."""
    return (*dims.layout(buffer, values), to_torch(buffer.dtype))


def scratch_bytes(steps: Sequence[Step], dims: DimTable, values: Values) -> int:
    """Return the scratch bytes that each thread needs for any of these steps."""
    return _aligned(max((values[dims.number(dim)] for dim in _scratch(steps)), default=0))


def _scratch(steps: Sequence[Step]) -> set[Dim]:
    return {step.scratch for step in steps if isinstance(step, Launch)}


def _aligned(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT
