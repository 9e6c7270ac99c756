"""The views that a program returns, made of the caller's own arguments and of its results.

An argument that kernels could not read where it lies was copied for the call. A view of it is made
of the argument all the same: it shares the caller's memory, and has the strides and the place there
that follow from it, as in eager. What lies so that a view cannot be made of it (all elements of a
transposed matrix in a row) is copied first: `reshape` is such a view, and a copy elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.scalar import NUMBERS
from kernelmill.plan.ir import AtenCall, BufferKind, DimResult, Plan, Result, TensorResult
from kernelmill.plan.literals import buffers_in, dim_of, dims_in
from kernelmill.runtime.aten import CallArguments, find_operator, flattened
from kernelmill.torch_internals.dispatch import plain_calls

Call = Callable[..., list[Any]]


def computed_results(plan: Plan) -> tuple[Result, ...]:
    """What the steps of a plan have to give: its results, None in the place of views; then the
    tensors of the steps that views are made of, then the dims that these ask for."""
    results = tuple(None if _is_view(plan, result) else result for result in plan.results)
    tensors = map(TensorResult, _bases(plan, BufferKind.TENSOR))
    return (*results, *tensors, *map(DimResult, _dims(plan)))


def with_views(plan: Plan, call: Call) -> Call:
    """The call of a plan, from one that gives its `computed_results`."""
    if not plan.views:
        return call
    count, bases, dims = len(plan.results), _bases(plan, BufferKind.TENSOR), _dims(plan)
    arguments = [(n, plan.buffers[n].source) for n in _bases(plan, BufferKind.INPUT)]
    first_dim = count + len(bases)
    views = [_View(plan, call) for call in plan.views]
    returned = [
        (place, result.buffer)
        for place, result in enumerate(plan.results)
        if isinstance(result, TensorResult) and _is_view(plan, result)
    ]

    def run(*args: Any) -> list[Any]:
        results = call(*args)
        made = _Made(
            dict(zip(bases, results[count:first_dim], strict=True)),
            dict(zip(dims, results[first_dim:], strict=True)),
        )
        made.tensors.update((buffer, args[argument]) for buffer, argument in arguments)
        for view in views:
            view.make(made)
        found = results[:count]
        for place, buffer in returned:
            found[place] = made.tensors[buffer]
        return found

    return plain_calls(run)


@dataclass(frozen=True)
class _Made:
    """Tensors by buffer, and the values of dims."""

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
        """Put what it gives to the tensors. RuntimeError of torch where it is no view of a tensor
        that lies row by row either."""
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
    """The buffers of this kind that views are made of."""
    read = (n for call in plan.views for n in buffers_in((call.args, call.kwargs)))
    return [n for n in dict.fromkeys(read) if plan.buffers[n].kind == kind]


def _dims(plan: Plan) -> list[Any]:
    found = (dim for c in plan.views for dim in dims_in((c.args, c.kwargs), plan.symbols))
    return list(dict.fromkeys(found))
