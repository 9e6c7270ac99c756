"""Calls whose sizes are no gear, padded to the smallest gear that holds them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Union

import torch
from torch import Tensor

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, evaluate, symbols
from kernelmill.core.errors import InputError
from kernelmill.core.target.machine import Machine, host
from kernelmill.plan.ir import PaddedInput, PaddedResult, Padding
from kernelmill.runtime.argument_validation import check_order
from kernelmill.runtime.calls.caller import Call, Pick, argument_picker
from kernelmill.runtime.calls.engine import Callee
from kernelmill.runtime.counters import estimated_ns
from kernelmill.runtime.memory.allocation import empty_strided
from kernelmill.runtime.memory.dims import SizeSource, plan_dims, size_reader
from kernelmill.runtime.program import Program

Refuse = Callable[[tuple[Any, ...], Exception | None], Any]
"""Answers a call that no gear accepts: it raises, or returns results by other means. The exception
is that of the chosen gear, if it refused an argument."""


@dataclass(frozen=True, eq=False)
class GearedProgram:
    """Programs by size. `table` has the program for each tuple of sizes, which `sources` read from
    the arguments; `symbols` are those dims (one symbol each, as a rule). `arguments` are the
    positions of those arguments, of `count`, that programs take. Programs may be added during
    calls."""

    sources: tuple[SizeSource, ...]
    symbols: tuple[str, ...]
    table: MutableMapping[tuple[int, ...], Callee]
    arguments: tuple[int, ...]
    count: int

    def caller(self, refuse: Refuse) -> Call:
        """Return the function to call: a table lookup and a static call for any number of gears."""
        find, pick, count = self._calls.get, self.pick, self.count
        one = self.sources[0].argument if self._one_integer else -1
        read = self.read if one < 0 else operator.itemgetter(one)

        def call(*args: Any) -> Any:
            try:
                chosen = find(read(args)) if len(args) == count else None
            except (AttributeError, IndexError, TypeError) as error:
                return refuse(args, error)
            if chosen is None:
                return refuse(args, None)
            try:
                return chosen(*pick(args))
            except InputError as error:
                return refuse(args, error)

        return call

    def add(self, sizes: tuple[int, ...], program: Callee) -> None:
        """Run calls of these sizes with this program from now on."""
        self.table[sizes] = program
        self._calls[self._key(sizes)] = program.call

    def remove(self, sizes: tuple[int, ...]) -> None:
        """Remove the program for these sizes."""
        del self.table[sizes]
        self._calls.pop(self._key(sizes), None)

    @cached_property
    def _calls(self) -> dict[Any, Call]:
        return {self._key(sizes): program.call for sizes, program in self.table.items()}

    @property
    def _one_integer(self) -> bool:
        return len(self.sources) == 1 and self.sources[0].axis < 0

    def _key(self, sizes: tuple[int, ...]) -> Any:
        return sizes[0] if self._one_integer else sizes

    @cached_property
    def pick(self) -> Pick:
        """Selector of the arguments of a call that the programs take."""
        if list(self.arguments) == list(range(self.count)):
            return lambda args: args
        return argument_picker(self.arguments)

    @cached_property
    def read(self) -> Callable[[Sequence[Any]], tuple[int, ...]]:
        """Reader of a call's sizes. Raises AttributeError, IndexError or TypeError for arguments of
        unexpected kinds."""
        return size_reader(self.sources)


_TENSOR_NS = 5000
"""Time of torch's operators that fill one argument or crop one result, whatever its size."""

Sizes = Mapping[str, int]
Shape = tuple[int, ...]


class Resizing:
    """The padding and cropping around a program's calls of one set of true sizes, precomputed.

    `sizes` and `gear` give every symbol its true and its padded value.
    """

    def __init__(self, padding: Padding, sizes: Sizes, gear: Sizes) -> None:
        """Raise InputError for true sizes at which the traced program does not hold: padded, they
        would give other results than the model's."""
        _check_ranges(padding, sizes)
        self._sizes = [(number, gear[symbol]) for number, symbol in padding.sizes]
        inputs = [_Room.of(entry, sizes, gear) for entry in padding.inputs]
        self._inputs = [room for room in inputs if room.taken != room.shape]
        self._size_results = [(n, evaluate(dim, sizes)) for n, dim in padding.size_results]
        self._results = [_Cut.of(entry, sizes, gear) for entry in padding.results]

    def estimated_ns(self, machine: Machine) -> float:
        """Return the nanoseconds that padding and cropping take besides the program."""
        moved = sum(8 * (prod(room.shape) + 2 * prod(room.taken)) for room in self._inputs)
        moved += sum(16 * prod(cut.shape) for cut in self._results)
        return machine.passing(moved) + _TENSOR_NS * (len(self._inputs) + len(self._results))

    def pad(self, arguments: Sequence[Any], in_order: bool = False) -> list[Any]:
        """Return the arguments at the gear's sizes. Tensors that are too small are copied into
        zeros; all others are passed through. Tensors must have the shapes of the true sizes.
        InputError if a copied one has to be `in_order`, and its dims are not."""
        found = list(arguments)
        for number, size in self._sizes:
            found[number] = size
        for room in self._inputs:
            tensor = found[room.number]
            if in_order:
                check_order(f"argument number {room.number}", tensor, room.strides)
            found[room.number] = room.filled(tensor)
        return found

    def cut(self, results: Sequence[Any]) -> list[Any]:
        """Return the results at the true sizes, with eager's strides: views of those that have
        these strides already, and copies of the others."""
        found = list(results)
        for number, size in self._size_results:
            found[number] = size
        for cut in self._results:
            found[cut.number] = cut.applied(found[cut.number])
        return found


def _check_ranges(padding: Padding, sizes: Sizes) -> None:
    for name, low, high in padding.ranges:
        most = None if high is None else evaluate(high, sizes)
        if sizes[name] < low or (most is not None and sizes[name] > most):
            top = "" if most is None else f" and at most {most}"
            raise InputError(
                f"a size of {sizes[name]} cannot be padded: the model was traced for sizes of at "
                f"least {low}{top}, and may do something else for this one"
            )


@dataclass(frozen=True)
class _Room:
    """The zero-filled tensor for argument `number`, and the shape of the part it fills."""

    number: int
    taken: Shape
    shape: Shape
    strides: Shape

    @staticmethod
    def of(entry: PaddedInput, sizes: Sizes, gear: Sizes) -> _Room:
        shapes = _evaluated(entry.shape, sizes), _evaluated(entry.shape, gear)
        return _Room(entry.number, *shapes, _evaluated(entry.strides, gear))

    def filled(self, tensor: Tensor) -> Tensor:
        room = empty_strided(self.shape, self.strides, tensor.dtype).zero_()
        room.as_strided(self.taken, self.strides).copy_(tensor.detach())
        return room


@dataclass(frozen=True)
class _Cut:
    """Cropping of result `number`: view as `apart` if dims have several factors, then narrow, and
    give it its shape and strides."""

    number: int
    apart: Shape | None
    narrowed: tuple[tuple[int, int], ...]
    shape: Shape
    strides: Shape

    @staticmethod
    def of(entry: PaddedResult, sizes: Sizes, gear: Sizes) -> _Cut:
        whole = all(len(axis) == 1 for axis in entry.axes)
        factors = [factor for axis in entry.axes for factor in axis]
        padded, true = _evaluated(factors, gear), _evaluated(factors, sizes)
        pairs = enumerate(zip(true, padded, strict=True))
        return _Cut(
            entry.number,
            None if whole else padded,
            tuple((d, size) for d, (size, larger) in pairs if size != larger),
            tuple(prod(_evaluated(axis, sizes)) for axis in entry.axes),
            _evaluated(entry.strides, sizes),
        )

    def applied(self, tensor: Tensor) -> Tensor:
        kept = tensor if self.apart is None else tensor.reshape(self.apart)
        for d, size in self.narrowed:
            kept = kept.narrow(d, 0, size)
        if self.apart is not None:
            kept = kept.reshape(self.shape)
        if kept.stride() == self.strides:
            return kept
        return empty_strided(self.shape, self.strides, tensor.dtype).copy_(kept)


def _evaluated(dims: Sequence[Dim], sizes: Sizes) -> Shape:
    return tuple(evaluate(dim, sizes) for dim in dims)


Padded = Callable[[tuple[Any, ...]], Union[list[Any], None]]
"""A call of one set of true sizes; None when an argument has another shape."""

_MOST_SIZES = 4096
"""Most true sizes whose gear a program caches."""


class PaddedCalls:
    """Runs calls at the smallest gear that holds their sizes, and crops the results; or runs the
    `dynamic` program, where the cost model has that finish earlier.

    `broken` returns the assumption of the trace that does not hold for sizes; "" if all hold. With
    `in_order`, arguments whose dims have another order in memory than the plan's are refused.
    """

    def __init__(
        self,
        padding: Padding,
        program: GearedProgram,
        broken: Callable[[Sizes], str],
        dynamic: Program | None = None,
        in_order: bool = False,
    ) -> None:
        self.padding, self.dynamic = padding, dynamic
        self._in_order = in_order
        self._program, self._broken = program, broken
        self._known: dict[tuple[int, ...], Padded] = {}
        self._gears = 0

    def __call__(self, args: tuple[Any, ...]) -> list[Any] | None:
        """Return the results; None when no gear holds the arguments.

        InputError when the model was not traced for such sizes.
        """
        key = self._program.read(args)
        if self._gears != len(self._program.table):  # one more was compiled
            self._known, self._gears = {}, len(self._program.table)
        call = self._known.get(key) or self._choose(key)
        return None if call is None else call(args)

    def offer(self, dynamic: Program) -> None:
        """Compare this program for all sizes with padding from now on."""
        self.dynamic, self._known = dynamic, {}

    def _choose(self, key: tuple[int, ...]) -> Padded | None:
        """Return the function for calls of these true sizes, cached; None if no gear holds them."""
        gear = smallest_holding(self._program.table, key)
        if gear is None:
            return None
        names, fixed = self._program.symbols, dict(self.padding.fixed)
        sizes = {**fixed, **dict(zip(names, key, strict=True))}
        resizing = Resizing(self.padding, sizes, {**fixed, **dict(zip(names, gear, strict=True))})
        broken = self._broken(sizes)
        if broken:
            raise InputError(f"the sizes {sizes} cannot be padded: {broken}")
        shapes = [
            (number, tuple(evaluate(dim, sizes) for dim in shape))
            for number, shape in self.padding.tensors
        ]
        program, dynamic = self._program.table[gear], self.dynamic
        as_they_are = dynamic is not None and _sooner(dynamic, sizes, program, resizing)
        run = dynamic.call if dynamic is not None and as_they_are else program.call
        pick, in_order = self._program.pick, self._in_order

        def call(args: tuple[Any, ...]) -> list[Any] | None:
            if not _fit(args, shapes):
                return None
            if as_they_are:
                return run(*args)
            return resizing.cut(run(*pick(resizing.pad(args, in_order))))

        while len(self._known) >= _MOST_SIZES:
            oldest, *_ = self._known  # at once, as others may add some
            self._known.pop(oldest, None)
        self._known[key] = call
        return call


def smallest_holding(
    gears: Iterable[tuple[int, ...]], sizes: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the gear of least work that holds these sizes; None when there is none."""
    fitting = [
        gear
        for gear in list(gears)
        if all(large >= small for large, small in zip(gear, sizes, strict=True))
    ]
    return min(fitting, key=lambda sizes: (prod(sizes), sizes), default=None)


def _sooner(dynamic: Program, sizes: Sizes, gear: Callee, resizing: Resizing) -> bool:
    """Return whether the cost model has the dynamic program finish before the padded call."""
    if not isinstance(gear, Program) or not _holds(dynamic, sizes):
        return False
    try:
        as_it_is = estimated_ns(dynamic.plan, sizes)
        padded = estimated_ns(gear.plan, {})
    except KeyError:
        return False
    return as_it_is < padded + resizing.estimated_ns(host())


def _holds(dynamic: Program, sizes: Sizes) -> bool:
    """Return whether the dynamic program accepts calls of these sizes."""
    equations = dynamic.plan.equations
    # An integer that nothing reads, as one that is a size again, may have any value.
    read = (*plan_dims(dynamic.plan), *(dim for pair in equations for dim in pair))
    return all(symbols(dim).keys() <= sizes.keys() for dim in read) and all(
        evaluate(left, sizes) == evaluate(right, sizes) for left, right in equations
    )


def _fit(args: tuple[Any, ...], shapes: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
    for number, shape in shapes:
        argument = args[number]
        if not isinstance(argument, torch.Tensor) or argument.shape != shape:
            return False
    return True
