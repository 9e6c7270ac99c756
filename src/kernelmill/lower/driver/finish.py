"""The plan of a program whose launches are known: arguments, results, the arena.

Buffer donation: a kernel writes its result over one of its inputs. The sum of a residual and a
branch, for example, then needs no new memory, and its cache lines were just read.

Results that are views of arguments or other results are made after all steps. A step would make
them of the copy of a misaligned argument, and a program with such a step could not run in one
native call. The same holds for assertions without other effects, which are also checked at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.scalar import in_order
from kernelmill.graph.effects import asserts
from kernelmill.graph.ir import DimInput, Input, NumberResult, Value
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.driver.binding import BoundSteps
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.lower.driver.placement import Placed
from kernelmill.plan import ir
from kernelmill.plan.arena import ArenaBuffer, assign_with_donations, lifetimes
from kernelmill.plan.ir import Launch, Step, buffers_in
from kernelmill.torch_internals.operators import gives_views, writes


def donated_buffers(
    steps: Sequence[Step],
    kernels: Mapping[str, Kernel],
    lives: Mapping[int, ArenaBuffer],
) -> dict[int, int]:
    """Map arena buffers to the buffer whose memory is donated to them, each donor only once.
    `lives` are the lifetimes of all arena buffers."""
    found: dict[int, int] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, Launch):
            continue
        for target, source in _pairs(step, kernels[step.kernel]):
            if target not in lives or source not in lives or target in found:
                continue
            dies = lives[source].last == number == lives[target].first
            same = lives[source].bytes == lives[target].bytes
            if dies and same and source not in found.values():
                found[target] = source
    return found


def _pairs(launch: Launch, kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield (output, input) by their numbers in the plan, of buffers that the launch has once."""
    if not any(buffer.over for buffer in kernel.buffers):
        return
    once = {
        buffer.name: number
        for buffer, number in zip(kernel.buffers, launch.buffers, strict=True)
        if launch.buffers.count(number) == 1
    }
    for buffer in kernel.buffers:
        for source in buffer.over:
            if buffer.name in once and source in once:
                yield once[buffer.name], once[source]


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


def finish(placed: Placed, bound: BoundSteps) -> Lowered:
    """Return the plan, with a place in the arena for buffers of a single call."""
    graph = placed.prepared.graph
    results = [_result(placed, result) for result in graph.results]
    only_results = bound.checks is None and not graph.updates
    views = returned_views(bound.steps, bound.buffers, results, only_results)
    buffers, arena_bytes = in_arena(views.buffers, views.steps, bound.kernels)
    plan = ir.Plan(
        graph.name,
        in_order(graph.symbols.values()),
        tuple(_input(placed, entry) for entry in graph.inputs),
        buffers,
        bound.prepare,
        views.steps,
        views.results,
        bound.refs,
        arena_bytes,
        () if bound.checks is None else (_check_message(bound.checks),),
        equations=tuple(graph.equations),
        views=views.calls,
    )
    return Lowered(plan, bound.kernels, bound.facts, bound.losses)


def in_arena(
    buffers: Sequence[ir.BufferSpec], steps: Sequence[ir.Step], kernels: Mapping[str, Kernel]
) -> tuple[tuple[ir.BufferSpec, ...], Dim]:
    """Return the buffers with their offsets, and the arena's bytes."""
    lives = lifetimes(steps, buffers)
    donated = donated_buffers(steps, kernels, lives)
    arena = assign_with_donations(lives, donated)
    offsets = dict(zip(lives, arena.offsets, strict=True))
    placed = tuple(
        replace(spec, offset=offsets[number]) if number in offsets else spec
        for number, spec in enumerate(buffers)
    )
    return placed, arena.bytes


def _input(placed: Placed, entry: Input | DimInput) -> ir.TensorInput | ir.SymbolInput:
    if isinstance(entry, DimInput):
        return ir.SymbolInput(entry.symbol.name)
    kind = entry.value.type
    updated = any(target is entry.value for target, _ in placed.prepared.graph.updates)
    return ir.TensorInput(
        entry.value.name, kind.dtype, kind.shape, kind.memory_strides, entry.role, updated
    )


def _result(placed: Placed, result: object) -> ir.Result:
    if isinstance(result, Value):
        location = placed.locations.get(result)
        if location is None:
            location = placed.locations[placed.aliases.bases[result]]
        return ir.TensorResult(location.buffer)
    if result is None:
        return None
    if isinstance(result, NumberResult):
        return ir.DimResult(result.word, result.kind)
    dim: Any = result
    return ir.DimResult(dim)


def _check_message(origins: Sequence[str]) -> str:
    where = f" at {' or '.join(origins)}" if origins else ""
    return f"index out of range{where}: an index tensor holds a value outside its dimension"
