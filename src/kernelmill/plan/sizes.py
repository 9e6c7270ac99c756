"""A plan with numbers in place of its symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernelmill.core.dim import Dim, substitute
from kernelmill.core.errors import UnsupportedError
from kernelmill.plan.ir import BufferSpec, DimResult, Launch, Plan, Step, SymbolInput, TensorInput


def plan_at_sizes(plan: Plan, values: Mapping[str, Dim]) -> Plan:
    """Return the plan for these values of all its symbols, without the arguments that bind them.

    Raises UnsupportedError for a plan that calls ATen.
    """
    places: dict[int, int] = {}
    inputs: list[TensorInput] = []

    def at(dim: Dim) -> Dim:
        return substitute(dim, values)

    def buffer_at(buffer: BufferSpec) -> BufferSpec:
        return replace(
            buffer,
            shape=tuple(map(at, buffer.shape)),
            strides=tuple(map(at, buffer.strides)),
            source=places.get(buffer.source, -1),
            offset=at(buffer.offset),
        )

    def step_at(step: Step) -> Launch:
        if not isinstance(step, Launch):
            raise UnsupportedError(f"plan {plan.name} calls {step.target}")
        dims = tuple(map(at, step.dims))
        tasks, scratch, work = at(step.tasks), at(step.scratch), at(step.work)
        return replace(step, dims=dims, tasks=tasks, scratch=scratch, work=work)

    if plan.views:
        raise UnsupportedError(f"plan {plan.name} returns views")
    for number, entry in enumerate(plan.inputs):
        if not isinstance(entry, SymbolInput):
            places[number] = len(inputs)
            shape, strides = tuple(map(at, entry.shape)), tuple(map(at, entry.strides))
            inputs.append(replace(entry, shape=shape, strides=strides))
    return replace(
        plan,
        symbols=(),
        inputs=tuple(inputs),
        buffers=tuple(map(buffer_at, plan.buffers)),
        prepare=tuple(map(step_at, plan.prepare)),
        steps=tuple(map(step_at, plan.steps)),
        results=tuple(
            replace(r, value=at(r.value)) if isinstance(r, DimResult) else r for r in plan.results
        ),
        arena_bytes=at(plan.arena_bytes),
        equations=tuple((at(left), at(right)) for left, right in plan.equations),
    )
