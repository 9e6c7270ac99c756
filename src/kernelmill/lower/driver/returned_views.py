"""Results that are views: made when all steps have run, of arguments or other results.

A step would make them of what kernels read, which is a copy of an argument that lies askew, and
would keep a program that only launches kernels from the native entry. So would an assertion: one
of which nothing is seen but the error is looked at when all steps have run, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.effects import asserts
from kernelmill.plan import ir
from kernelmill.plan.literals import buffers_in
from kernelmill.torch_internals.operators import gives_views, writes


@dataclass(frozen=True)
class ReturnedViews:
    """The steps of a plan without those that only make views which are returned, and assertions;
    those, in `calls`; the buffers and results with the views among them."""

    steps: tuple[ir.Step, ...]
    calls: tuple[ir.AtenCall, ...]
    buffers: tuple[ir.BufferSpec, ...]
    results: tuple[ir.Result, ...]


def returned_views(
    steps: Sequence[ir.Step],
    buffers: Sequence[ir.BufferSpec],
    results: Sequence[ir.Result],
    only_results: bool = True,
) -> ReturnedViews:
    """Take the views that are returned out of the steps, in which views that other steps read stay.
    `only_results`: launches write to nothing else that lasts, and raise no errors; assertions with
    only launches behind them are then taken out as well."""
    returned = {result.buffer for result in results if isinstance(result, ir.TensorResult)}
    calls: list[ir.AtenCall] = []
    kept: list[ir.Step] = []
    read: set[int] = set()
    for step in reversed(steps):
        if only_results and isinstance(step, ir.AtenCall) and asserts(step.target):
            calls.insert(0, step)
            read.update(_operands(step))
            continue
        taken = isinstance(step, ir.AtenCall) and _is_view(step) and returned & {*step.results}
        if taken and isinstance(step, ir.AtenCall):
            calls.insert(0, step)
            returned.update(_operands(step))
        if not taken or (isinstance(step, ir.AtenCall) and read & {*step.results}):
            kept.insert(0, step)
            read.update(_operands(step))
            only_results &= isinstance(step, ir.Launch)
    made = {number for call in calls for number in call.results if number >= 0}
    specs = list(buffers)
    numbers: dict[int, int] = {}
    for number in sorted(made):
        view = replace(buffers[number], kind=ir.BufferKind.VIEW)
        if number in read:
            numbers[number] = len(specs)
            specs.append(view)
        else:
            specs[number] = view
    return ReturnedViews(
        tuple(kept),
        tuple(_renumbered(call, numbers) for call in calls),
        tuple(specs),
        tuple(
            ir.TensorResult(numbers.get(r.buffer, r.buffer))
            if isinstance(r, ir.TensorResult)
            else r
            for r in results
        ),
    )


def _is_view(call: ir.AtenCall) -> bool:
    """Check that a call only makes views of one tensor."""
    one = len(list(buffers_in((call.args, call.kwargs)))) == 1
    return one and not call.binds and gives_views(call.target) and not writes(call.target)


def _operands(step: ir.Step) -> Collection[int]:
    return (
        set(buffers_in((step.args, step.kwargs)))
        if isinstance(step, ir.AtenCall)
        else {n for n in step.buffers if n >= 0}
    )


def _renumbered(call: ir.AtenCall, numbers: Mapping[int, int]) -> ir.AtenCall:
    def literal(value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        if len(value) == 2 and value[0] == "tensor":
            return ("tensor", numbers.get(value[1], value[1]))
        return tuple(map(literal, value))

    return replace(
        call,
        args=literal(call.args),
        kwargs=literal(call.kwargs),
        results=tuple(numbers.get(number, number) for number in call.results),
    )
