"""Padding of arguments to a gear's sizes with zeros, and cropping of results to the true ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, evaluate
from kernelmill.core.errors import InputError
from kernelmill.core.target.machine import Machine
from kernelmill.plan.padding import PaddedInput, PaddedResult, Padding
from kernelmill.runtime.argument_validation import check_order
from kernelmill.runtime.memory.allocation import empty_strided

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
