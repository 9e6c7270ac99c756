"""Results that are views of arguments which kernels could not read where they lie.

Such an argument is copied for the call; a result that is a view of it is made again of the argument
itself, as eager does: it shares the caller's memory, and has the strides that follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from kernelmill.plan.ir import BufferKind, Plan, TensorResult
from kernelmill.runtime.aten import AtenStep, Running
from kernelmill.torch_internals.operators import gives_views, writes


@dataclass(frozen=True)
class ReturnedViews:
    """`steps` make views, of arguments or of what an earlier one of them makes; `inputs` are the
    buffers of those arguments, with the numbers of these."""

    steps: tuple[AtenStep, ...]
    inputs: tuple[tuple[int, int], ...]

    def of(self, running: Running, given: Sequence[object]) -> Mapping[int, torch.Tensor]:
        """By buffer: the views of what was `given` in a call, where it ran with copies. None of
        those that another layout of an argument does not permit: there the copies' views stay."""
        found: dict[int, torch.Tensor] = {}
        for buffer, argument in self.inputs:
            tensor = given[argument]
            if tensor is not running.tensors[buffer] and isinstance(tensor, torch.Tensor):
                found[buffer] = tensor
        if not found:
            return found
        kept = list(running.tensors)
        for step in self.steps:
            if step.source not in found:
                continue
            running.tensors[step.source] = found[step.source]
            try:
                found.update(step.viewed(running))
            except RuntimeError:
                continue
        running.tensors[:] = kept
        return found


def returned_views(plan: Plan, steps: Sequence[AtenStep]) -> ReturnedViews:
    """The steps of a plan that make views which are returned."""
    inputs = {n: b.source for n, b in enumerate(plan.buffers) if b.kind == BufferKind.INPUT}
    returned = {result.buffer for result in plan.results if isinstance(result, TensorResult)}
    wanted: list[AtenStep] = []
    for step in reversed([step for step in steps if _is_view(step)]):
        if returned.intersection(step.call.results):
            wanted.insert(0, step)
            returned.add(step.source)
    read = {step.source for step in wanted}
    return ReturnedViews(tuple(wanted), tuple((b, a) for b, a in inputs.items() if b in read))


def _is_view(step: AtenStep) -> bool:
    target = step.call.target
    return step.source >= 0 and gives_views(target) and not writes(target)
