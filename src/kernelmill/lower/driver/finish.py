"""The plan of a program whose launches are known: arguments, results, the arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmill.core.dim import Dim
from kernelmill.core.scalar import in_order
from kernelmill.graph.ir import DimInput, Input, NumberResult, Value
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.driver.binding import Bound
from kernelmill.lower.driver.donation import donated_buffers
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.lower.driver.placement import Placed
from kernelmill.lower.driver.returned_views import returned_views
from kernelmill.plan import ir
from kernelmill.plan.arena import assign_with_donations, lifetimes


def finish(placed: Placed, bound: Bound) -> Lowered:
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
