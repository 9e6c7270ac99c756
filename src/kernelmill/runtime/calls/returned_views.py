"""Views of arguments and results that a program returns, and assertions, which are checked first.

If an argument was copied for the kernels, a view of it is still made of the argument itself: it
shares the caller's memory, with eager's strides and offset. If strides do not permit the view (a
flattened transposed matrix), its base is copied first, as `reshape` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.scalar import NUMBERS
from kernelmill.plan.ir import (
    AtenCall,
    BufferKind,
    DimResult,
    Plan,
    Result,
    TensorResult,
    buffers_in,
    dim_of,
    dims_in,
)
from kernelmill.runtime.calls.aten import CallArguments, find_operator, flattened

_MOST_LAYOUTS = 64
"""Most layouts of bases whose views are cached."""


def computed_results(plan: Plan) -> tuple[Result, ...]:
    """Return the results that a plan's steps compute: None in place of views, then the base tensors
    of views, then the dims that views need."""
    results = tuple(None if _is_view(plan, result) else result for result in plan.results)
    tensors = map(TensorResult, _bases(plan, BufferKind.TENSOR))
    return (*results, *tensors, *map(DimResult, _dims(plan)))


def views_arguments(plan: Plan) -> bool:
    """Return whether a returned view has an argument as its base."""
    return bool(_bases(plan, BufferKind.INPUT))


class ViewMaker:
    """Maker of the views among a plan's results, in the caller's own modes, on which later writes
    to a view depend. Operators make them for the first call with each layout of arguments and
    tensors; their offsets, shapes and strides are then cached for later calls."""

    def __init__(self, plan: Plan) -> None:
        tensors, inputs = (_bases(plan, kind) for kind in (BufferKind.TENSOR, BufferKind.INPUT))
        self._count, self._first_dim = len(plan.results), len(plan.results) + len(tensors)
        self._bases, self._dims = (*tensors, *inputs), _dims(plan)
        self._arguments = [plan.buffers[number].source for number in inputs]
        self._calls = [_View(plan, call) for call in plan.views if call.results]
        self._places = [
            (place, result.buffer)
            for place, result in enumerate(plan.results)
            if isinstance(result, TensorResult) and _is_view(plan, result)
        ]
        roots = {number: place for place, number in enumerate(self._bases)}
        self._assertions: list[tuple[int, _View]] = []
        self._detached: set[int] = set()
        for call in plan.views:
            (base,) = buffers_in((call.args, call.kwargs))
            roots.update(dict.fromkeys(call.results, roots[base]))
            if base in self._detached or call.target == "aten.detach.default":
                self._detached.update(call.results)
            if not call.results:
                self._assertions.append((roots[base], _View(plan, call)))
        self._returned = {buffer: roots[buffer] for _, buffer in self._places}
        self._layouts: dict[object, Sequence[_Layout]] = {}

    def complete(self, computed: list[Any], args: Sequence[Any]) -> list[Any]:
        """Return the plan's results, from its `computed_results` and the arguments of the call.
        Raises the errors of failed assertions."""
        bases = computed[self._count : self._first_dim]
        bases += [args[number] for number in self._arguments]
        dims, found = computed[self._first_dim :], computed[: self._count]
        for number, assertion in self._assertions:
            if bases[number].numel() != 1 or not bases[number]:
                assertion.make(self._made(bases, dims))
        if not self._places:
            return found
        key = (*map(_lies, bases), *dims)
        layouts = self._layouts.get(key)
        if layouts is None:
            views = self._by_operators(key, bases, dims)
        else:
            views = [
                (bases[n].detach() if apart else bases[n]).as_strided(shape, strides, at)
                for n, apart, shape, strides, at in layouts
            ]
        made = dict(zip(self._returned, views, strict=True))
        for place, buffer in self._places:
            found[place] = made[buffer]
        return found

    def _made(self, bases: Sequence[torch.Tensor], dims: Sequence[int]) -> _Made:
        tensors = dict(zip(self._bases, bases, strict=True))
        return _Made(tensors, dict(zip(self._dims, dims, strict=True)))

    def _by_operators(
        self, key: object, bases: Sequence[torch.Tensor], dims: Sequence[int]
    ) -> Sequence[torch.Tensor]:
        made = self._made(bases, dims)
        for call in self._calls:
            call.make(made)
        views = [made.tensors[buffer] for buffer in self._returned]
        pairs = list(zip(views, self._returned.values(), strict=True))
        detached = [buffer in self._detached for buffer in self._returned]
        if all(_is_by_strides(view, bases[root]) for view, root in pairs):
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts = {}
            self._layouts[key] = [
                (root, apart, tuple(view.shape), view.stride(), int(view.storage_offset()))
                for (view, root), apart in zip(pairs, detached, strict=True)
            ]
        return views


_Layout = tuple[int, bool, tuple[int, ...], tuple[int, ...], int]
"""A view: the index of its base, whether it is detached from that, shape, strides and offset."""


def _lies(tensor: torch.Tensor) -> object:
    """Return the properties of a tensor that decide the layout of its views."""
    strides, offset = tensor.stride(), tensor.storage_offset()
    return tensor.shape, strides, offset, tensor.is_neg(), tensor.requires_grad


def _is_by_strides(view: torch.Tensor, base: torch.Tensor) -> bool:
    """Return whether a view shares storage and elements with its base, without gradient or lazy
    bits, so that strides and offset alone reproduce it. Views of complex numbers may be lazy."""
    same = view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    plain = view.dtype == base.dtype and not view.is_complex() and not base.requires_grad
    return same and plain and view.is_neg() == base.is_neg()


@dataclass(frozen=True)
class _Made:
    """Tensors by buffer, and values of dims."""

    tensors: dict[int, torch.Tensor]
    dims: Mapping[Any, int]


class _View:
    def __init__(self, plan: Plan, call: AtenCall) -> None:
        self._operator, self._results = find_operator(call.target), call.results
        (self._base,) = buffers_in((call.args, call.kwargs))

        def read(kind: str, text: str) -> Callable[[_Made], object]:
            dim = dim_of(text, plan.symbols)
            number = NUMBERS.get(kind, int)
            return lambda made: number(made.dims[dim])

        self._arguments = CallArguments(call, read)

    def make(self, made: _Made) -> None:
        """Add the views of the call to `made.tensors`. RuntimeError of torch if even a contiguous
        base has no such view."""
        try:
            outcome = self._made(made)
        except RuntimeError:
            base = made.tensors[self._base]
            if base.is_contiguous():
                raise
            outcome = self._made(replace(made, tensors={self._base: base.contiguous()}))
        for buffer, tensor in zip(self._results, outcome, strict=False):
            if isinstance(tensor, torch.Tensor):
                made.tensors[buffer] = tensor

    def _made(self, made: _Made) -> Iterable[object]:
        args, kwargs = self._arguments.of(made)
        return flattened(self._operator(*args, **kwargs))


def _is_view(plan: Plan, result: Result) -> bool:
    return isinstance(result, TensorResult) and plan.buffers[result.buffer].kind == BufferKind.VIEW


def _bases(plan: Plan, kind: BufferKind) -> list[int]:
    """Return the base buffers of views that have this kind."""
    read = (n for call in plan.views for n in buffers_in((call.args, call.kwargs)))
    return [n for n in dict.fromkeys(read) if plan.buffers[n].kind == kind]


def _dims(plan: Plan) -> list[Any]:
    found = (dim for c in plan.views for dim in dims_in((c.args, c.kwargs), plan.symbols))
    return list(dict.fromkeys(found))
