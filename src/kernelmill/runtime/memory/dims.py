"""The dims of a plan, numbered, and their values for one set of symbol values.

The values of a call are in one array: first dims with symbols, in the order of `dims_needed`, so
that a compiled function can fill them together; then constants.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Sym, evaluate, maximum, of_atom, render, symbols
from kernelmill.core.dtype import to_torch
from kernelmill.core.errors import InputError
from kernelmill.core.scalar import completed, computed_late, spelled
from kernelmill.plan import ir
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Plan, Step, dims_in, whole_launch
from kernelmill.runtime.layout import word
from kernelmill.runtime.memory.allocation import (
    LARGE_BYTES,
    Allocate,
    elements_of,
    empty_strided,
    result_tensor,
)

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides, in elements."""

DimsFunction = Callable[[object, object], None]
"""void (const i64* symbols, i64* out): from values of plan.symbols those of `dims_needed(plan)`."""

_LARGEST = 2**63 - 1

Values = ctypes.Array[ctypes.c_int64]


def plan_dims(plan: ir.Plan) -> Iterator[Dim]:
    """Yield every dim that the runtime may need, with repetitions."""
    for entry in plan.inputs:
        if isinstance(entry, ir.TensorInput):
            yield from entry.shape
            yield from entry.strides
    for buffer in plan.buffers:
        if buffer.kind == ir.BufferKind.ARENA:
            yield buffer.offset
        elif buffer.kind in (ir.BufferKind.TENSOR, ir.BufferKind.PACKED):
            yield from buffer.shape
            yield from buffer.strides
    for step in (*plan.steps, *plan.prepare):
        if isinstance(step, ir.Launch):
            yield from (step.tasks, step.work, step.scratch)
            yield from step.dims
        else:
            yield from dims_in((step.args, step.kwargs), plan.symbols)
    for call in plan.views:
        yield from dims_in((call.args, call.kwargs), plan.symbols)
    for super_kernel in plan.supers:
        whole = whole_launch(plan, super_kernel)
        yield from (whole.tasks, whole.work)
    for result in plan.results:
        if isinstance(result, ir.DimResult):
            yield result.value
    yield plan.arena_bytes


def fixed_layout(of: ir.TensorInput | ir.BufferSpec) -> Layout:
    """Return shape and strides of an argument or a buffer whose sizes are numbers."""
    shape, strides = ([evaluate(dim, {}) for dim in dims] for dims in (of.shape, of.strides))
    return tuple(shape), tuple(strides)


def late_symbols(plan: ir.Plan) -> frozenset[str]:
    """Return the symbols that an ATen step binds and those computed from them, which have no value
    when the call begins."""
    calls = (step for step in plan.steps if isinstance(step, ir.AtenCall))
    found = {symbol for call in calls for symbol, _, _ in call.binds}
    return frozenset(found | computed_late(plan.symbols, found))


def given_symbols(plan: ir.Plan) -> dict[str, Sym]:
    """Return the symbols that have a value when a call begins and are not computed from others."""
    late = late_symbols(plan)
    return {s.name: s for s in plan.symbols if s.value is None and s.name not in late}


def dims_needed(plan: ir.Plan) -> tuple[Dim, ...]:
    """Return the dims that a compiled dims function computes for this plan, in this order: the
    symbols come first, in theirs.

    None for a static plan. Dims over symbols that ATen steps bind are not among them.
    """
    if not plan.symbols:
        return ()
    late = late_symbols(plan)
    read = (dim for dim in plan_dims(plan) if isinstance(dim, Expr))
    needed = dict.fromkeys((*map(of_atom, plan.symbols), *read))
    return tuple(dim for dim in needed if not late & symbols(dim).keys())


class DimTable:
    """The numbers of a plan's dims, and a factory of the arrays of their values."""

    def __init__(self, plan: ir.Plan, function: DimsFunction | None) -> None:
        needed = dims_needed(plan)
        expressions, constants = dict[Dim, None](), dict[Dim, None]()
        for dim in plan_dims(plan):
            (constants if isinstance(dim, int) else expressions)[dim] = None
        self._equations = [
            (left, right, symbols(left).keys() | symbols(right).keys())
            for left, right in plan.equations
        ]
        self._early = needed
        self._symbols = plan.symbols
        early = set(needed)
        self.late = tuple(dim for dim in expressions if dim not in early)
        self._numbers = {
            dim: number for number, dim in enumerate((*needed, *self.late, *constants))
        }
        self._function = function
        self._ranges: list[tuple[str, int, Dim]] = [
            (s.name, s.lo, _LARGEST if s.hi is None else s.hi) for s in plan.symbols
        ]
        highs = [high if isinstance(high, int) else -1 for _, _, high in self._ranges]
        # A value in between is in the range of each symbol.
        self._low = max((low for _, low, _ in self._ranges), default=0)
        self._high = min(highs, default=0)
        self._array = word * len(self._numbers)
        known = self._array()
        known[len(needed) + len(self.late) :] = list(constants)
        self._known = bytes(known)

    def is_late(self, dims: Iterable[Dim]) -> bool:
        """Return whether one of these dims has no value when the call begins."""
        return bool(self.late) and any(dim in self.late for dim in dims)

    def number(self, dim: Dim) -> int:
        """Return the index of a dim's value in the array."""
        return self._numbers[dim]

    def numbers(self, dims: Iterable[Dim]) -> list[int]:
        return [self._numbers[dim] for dim in dims]

    def values(self, values: Mapping[str, int]) -> Values:
        """Return the array for these values of symbols, which are `completed`; dims over symbols
        without a value are 0.

        InputError for values that the plan does not allow.
        """
        self.check(values)
        made = self.constant_values()
        if self._function is not None and self._early:
            whole = len(values) == len(self._ranges)
            given = array("q", values.values() if whole else self._with_zeros(values))
            self._function(given.buffer_info()[0], made)
        else:
            made[: len(self._early)] = [evaluate(dim, values) for dim in self._early]
        self.fill_late(made, values)
        return made

    def completed(self, values: Mapping[str, int]) -> Mapping[str, int]:
        """Return these values and those computed from them, in the order of the plan's symbols.
        Raises errors of the arithmetic, as ZeroDivisionError."""
        return completed(self._symbols, values)

    def _with_zeros(self, values: Mapping[str, int]) -> list[int]:
        return [values.get(name, 0) for name, _, _ in self._ranges]

    def constant_values(self) -> Values:
        """Return the array with constants alone, for steps that run before symbols have values."""
        return self._array.from_buffer_copy(self._known)

    def layout_numbers(self, of: ir.TensorInput | ir.BufferSpec) -> tuple[list[int], list[int]]:
        """Return the indices of shape and strides of an argument or a buffer among the values."""
        return self.numbers(of.shape), self.numbers(of.strides)

    def layout(self, of: ir.TensorInput | ir.BufferSpec, values: Values) -> Layout:
        """Return shape and strides of an argument or a buffer from an array of values."""
        shape, strides = self.layout_numbers(of)
        return tuple([values[n] for n in shape]), tuple([values[n] for n in strides])

    def check(self, values: Mapping[str, int]) -> None:
        """Raise InputError for a value outside its symbol's range, or for unequal dims that the
        plan takes for equal. Symbols without a value yet are skipped."""
        found = values.values()
        inside = self._low <= min(found, default=0) and max(found, default=-1) <= self._high
        for name, low, high in () if inside else self._ranges:
            value = values.get(name)
            if value is None:
                continue
            most = high if isinstance(high, int) else evaluate(high, values)
            if not low <= value <= most:
                text = next(spelled(of_atom(s)) for s in self._symbols if s.name == name)
                raise InputError(
                    f"symbol {text} is {value}, but the program was compiled for {text} in [{low}, "
                    f"{'inf' if most == _LARGEST else most}]: compile it again for this size"
                )
        for left, right, needed in self._equations:
            if needed <= values.keys() and evaluate(left, values) != evaluate(right, values):
                (a, first), (b, second) = ((spelled(d), evaluate(d, values)) for d in (left, right))
                raise InputError(
                    f"sizes do not fit: {a} is {first}, and has to be at least 1"
                    if right == maximum(left, 1)
                    else f"sizes do not fit: {a} is {first} and {b} is {second}, and the program "
                    "needs them equal"
                )

    def fill_late(self, made: Values, values: Mapping[str, int]) -> None:
        """Compute the dims over late symbols that have all their values in `values`."""
        for number, dim in enumerate(self.late, len(self._early)):
            if symbols(dim).keys() <= values.keys():
                made[number] = evaluate(dim, values)


class SizeSource(NamedTuple):
    """Source of a size, or of the symbol of this name, at each call: an integer argument (axis -1),
    or an axis of a tensor one."""

    argument: int
    axis: int = -1
    name: str = ""

    def __str__(self) -> str:
        axis = f" dim {self.axis}" if self.axis >= 0 else ""
        return f"{self.name} = argument {self.argument}{axis}"


def symbol_sources(plan: ir.Plan) -> tuple[SizeSource, ...]:
    """Return one source for each symbol that has a value when the call begins.

    Integer arguments come first; otherwise a tensor's size that is just the symbol is taken.
    ValueError when a symbol has neither.
    """
    found: dict[str, SizeSource] = {}
    for i, entry in enumerate(plan.inputs):
        if isinstance(entry, ir.SymbolInput):
            found.setdefault(entry.symbol, SizeSource(i, -1, entry.symbol))
    for i, entry in enumerate(plan.inputs):
        if isinstance(entry, ir.TensorInput):
            for axis, dim in enumerate(entry.shape):
                if isinstance(dim, Expr) and str(dim) in symbols(dim):
                    found.setdefault(str(dim), SizeSource(i, axis, str(dim)))
    for name in given_symbols(plan):
        if name not in found:
            raise ValueError(f"plan {plan.name}: nothing gives symbol {name} its value")
    return tuple(found[s.name] for s in plan.symbols if s.name in found)


def size_reader(sources: Sequence[SizeSource]) -> Callable[[Sequence[Any]], tuple[int, ...]]:
    """Return a function that reads sizes from a call's arguments. It raises AttributeError,
    IndexError or TypeError for unexpected ones."""
    if len(sources) > 1 and all(source.axis < 0 for source in sources):
        return itemgetter(*(source.argument for source in sources))
    places = [(source.argument, source.axis) for source in sources]
    return lambda args: tuple([args[i] if axis < 0 else args[i].shape[axis] for i, axis in places])


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
