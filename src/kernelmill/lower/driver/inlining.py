"""The launches of an operator's own plan put into the plan of its program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.core.dim import Dim, substitute
from kernelmill.core.errors import UnsupportedError
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Plan, Step, TensorInput, TensorResult


class InlinedPlan:
    """A renaming of a plan's symbols to `values`, and of its arguments and results to buffers.

    `inputs` are the program's buffers for the plan's tensor arguments, in order, and `outputs`
    those for its results. Raises UnsupportedError for a plan that does more than launch kernels.
    """

    def __init__(
        self, plan: Plan, values: Mapping[str, Dim], inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self.plan = plan
        self.values = values
        arguments = [i for i, entry in enumerate(plan.inputs) if isinstance(entry, TensorInput)]
        sources = dict(zip(arguments, inputs, strict=True))
        self.numbers = {-1: -1}
        for number, buffer in enumerate(plan.buffers):
            if buffer.kind == BufferKind.INPUT:
                self.numbers[number] = sources[buffer.source]
        if plan.views:
            raise UnsupportedError("an operator gives back a view")
        for result, output in zip(plan.results, outputs, strict=True):
            if not isinstance(result, TensorResult) or result.buffer in self.numbers:
                raise UnsupportedError("an operator gives back what it was given")
            self.numbers[result.buffer] = output

    def buffers(self, first: int) -> list[BufferSpec]:
        """Return the plan's own buffers, which get the numbers from `first` on."""
        own: list[BufferSpec] = []
        for number, buffer in enumerate(self.plan.buffers):
            if number not in self.numbers:
                self.numbers[number] = first + len(own)
                shape = tuple(map(self._dim, buffer.shape))
                own.append(
                    replace(buffer, shape=shape, strides=tuple(map(self._dim, buffer.strides)))
                )
        return own

    def launches(
        self, steps: Iterable[Step], mark: Mark = UNMARKED, origin: str = ""
    ) -> list[Launch]:
        """Return these steps of the plan as steps of the program, in the range of `mark`."""
        found: list[Launch] = []
        for step in steps:
            if not isinstance(step, Launch):
                raise UnsupportedError("an operator that calls another")
            buffers = tuple(self.numbers[buffer] for buffer in step.buffers)
            dims = tuple(map(self._dim, step.dims))
            tasks, scratch, work = map(self._dim, (step.tasks, step.scratch, step.work))
            found.append(
                Launch(step.kernel, buffers, dims, tasks, scratch, work, mark, origin=origin)
            )
        return found

    def _dim(self, dim: Dim) -> Dim:
        return substitute(dim, self.values)
