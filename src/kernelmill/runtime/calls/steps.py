"""Steps of a program's call as data: one list, derived from its plan.

`call_of` (caller.py) makes one function of them, in which the native entry runs as many at once as
it can; `kernelmill lower --print call` shows them. The choice of a program by the sizes of a call,
and padding to larger sizes, is in runtime/gears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Union

from kernelmill.core.dataclass import dataclass
from kernelmill.plan import ir
from kernelmill.plan.ir import buffers_in
from kernelmill.plan.text import print_result, print_step
from kernelmill.runtime.calls.returned_views import computed_results
from kernelmill.runtime.calls.tables import is_bound
from kernelmill.runtime.memory.dims import SizeSource, symbol_sources


@dataclass(frozen=True)
class FindSizes:
    """Read the values of symbols from arguments. Derived sizes are cached (memory/dims.py)."""

    sources: tuple[SizeSource, ...]


@dataclass(frozen=True)
class BindWeights:
    """Find the binding of these long-lived arguments: their packed weights (weights/)."""

    arguments: tuple[int, ...]


@dataclass(frozen=True)
class MakeTensors:
    """Allocate tensors for these buffers."""

    buffers: tuple[int, ...]


@dataclass(frozen=True)
class CheckArguments:
    """Check these tensors and the binding in the native entry. Misaligned tensors, which it
    refuses, are copied (engine.py); others Python validates (`Engine.validate`), and copies them
    too, or refuses them by name. Nothing is written before the entry has accepted; then torch's
    version counters of `updated` arguments are incremented."""

    tensors: tuple[int, ...]
    updated: tuple[int, ...]


@dataclass(frozen=True)
class RunLaunches:
    """Run launches `first` up to `last` in order. `makes` are tensor buffers to allocate before
    them, `drops` those that no later step reads."""

    first: int
    last: int
    makes: tuple[int, ...]
    drops: tuple[int, ...]


@dataclass(frozen=True)
class CallOperator:
    """Call an ATen operator. `placed` are those of its results that launches read."""

    call: ir.AtenCall
    placed: tuple[int, ...]
    drops: tuple[int, ...]


@dataclass(frozen=True)
class MakeViews:
    """Make the returned views, in the caller's own modes (returned_views.py)."""

    calls: tuple[ir.AtenCall, ...]


@dataclass(frozen=True)
class ReturnResults:
    """Return the results, in their order."""

    results: tuple[ir.Result, ...]


Work = Union[RunLaunches, CallOperator]
Step = Union[FindSizes, BindWeights, MakeTensors, CheckArguments, Work, MakeViews, ReturnResults]


def steps_of(plan: ir.Plan) -> list[Step]:
    """Return all steps of a call of this plan, in order."""
    tensors = [
        (n, entry) for n, entry in enumerate(plan.inputs) if isinstance(entry, ir.TensorInput)
    ]
    bound = tuple(n for n, entry in tensors if is_bound(entry))
    checked = tuple(n for n, entry in tensors if not is_bound(entry))
    updated = tuple(n for n, entry in tensors if entry.updated)
    made = _made_first(plan)
    found: list[Step] = [FindSizes(sources)] if (sources := symbol_sources(plan)) else []
    found += [BindWeights(bound)] if bound else []
    found += [MakeTensors(made)] if made else []
    found += [CheckArguments(checked, updated), *_work(plan, made)]
    found += [MakeViews(plan.views)] if plan.views else []
    return [*found, ReturnResults(plan.results)]


def print_steps(steps: Sequence[Step]) -> str:
    """Return a line for each step: its kind, then its fields that are not empty."""

    def written(value: Any) -> str:
        if isinstance(value, (ir.TensorResult, ir.DimResult)) or value is None:
            return print_result(value)
        if isinstance(value, tuple) and not isinstance(value, SizeSource):
            return ", ".join(map(written, value))
        return print_step(value) if isinstance(value, ir.AtenCall) else str(value)

    lines: list[str] = []
    for step in steps:
        parts = [(field.name, written(getattr(step, field.name))) for field in fields(step)]
        texts = [f"{name}({text})" for name, text in parts if text]
        lines.append(" ".join((type(step).__name__, *texts)) + "\n")
    return "".join(lines)


def only_launches(plan: ir.Plan) -> bool:
    """Return whether a plan consists of launches only, which the native entry runs at once."""
    return all(isinstance(step, ir.Launch) for step in plan.steps)


def _made_first(plan: ir.Plan) -> tuple[int, ...]:
    """Return the tensor buffers allocated before the check: all, for a plan of launches only; else
    those without elements, which no step writes."""
    written = {b for launch in plan.prepare for b in launch.buffers}
    for step in () if only_launches(plan) else plan.steps:
        written.update(step.results if isinstance(step, ir.AtenCall) else step.buffers)
    kinds = (ir.BufferKind.TENSOR, ir.BufferKind.PACKED)
    return tuple(n for n, b in enumerate(plan.buffers) if b.kind in kinds and n not in written)


def _work(plan: ir.Plan, made: Sequence[int]) -> Iterator[Work]:
    """Yield the steps of the plan, consecutive launches grouped. `made` are allocated already."""
    if only_launches(plan):
        yield RunLaunches(0, len(plan.steps), (), ())
        return
    groups: list[list[ir.Launch] | ir.AtenCall] = []
    for step in plan.steps:
        if isinstance(step, ir.AtenCall):
            groups.append(step)
        elif groups and isinstance(groups[-1], list):
            groups[-1].append(step)
        else:
            groups.append([step])
    touched = [_touched(plan, group) for group in groups]
    last_use = {buffer: number for number, its in enumerate(touched) for buffer in its}
    kept = {r.buffer for r in computed_results(plan) if isinstance(r, ir.TensorResult)}
    read_natively = {b for step in plan.steps if isinstance(step, ir.Launch) for b in step.buffers}
    known, launches = set(made), 0
    for number, group in enumerate(groups):
        its = touched[number]
        drops = tuple(sorted(b for b in its - kept if last_use[b] == number))
        if isinstance(group, ir.AtenCall):
            yield CallOperator(
                group, tuple(b for b in group.results if b in read_natively - {-1}), drops
            )
        else:
            first, launches = launches, launches + len(group)
            yield RunLaunches(first, launches, tuple(sorted(its - known)), drops)
        known |= its


def _touched(plan: ir.Plan, group: Sequence[ir.Launch] | ir.AtenCall) -> set[int]:
    """Return the tensor buffers that these steps read or write."""
    if isinstance(group, ir.AtenCall):
        numbers = {*group.results, *buffers_in((group.args, group.kwargs))}
    else:
        numbers = {buffer for launch in group for buffer in launch.buffers}
    return {n for n in numbers if n >= 0 and plan.buffers[n].kind == ir.BufferKind.TENSOR}
