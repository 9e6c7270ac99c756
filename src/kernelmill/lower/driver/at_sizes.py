"""A lowered program for one set of sizes: a plan with numbers instead of symbols.

It has the kernels for all sizes, which get the numbers at their launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmill.core.dim import Dim, evaluate, of_atom, parse
from kernelmill.core.scalar import NUMBERS, completed
from kernelmill.lower.driver.finish import in_arena
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.plan import ir


def lowered_at_sizes(lowered: Lowered, sizes: Mapping[str, int], name: str) -> Lowered:
    """Return the program under this name for these values of all its symbols. Integer arguments
    that bind these are dropped; the other arguments keep their order."""
    plan = _AtSizes(lowered.plan, sizes).plan(name)
    buffers, arena_bytes = in_arena(plan.buffers, plan.steps, lowered.kernels)
    return replace(lowered, plan=replace(plan, buffers=buffers, arena_bytes=arena_bytes))


class _AtSizes:
    def __init__(self, plan: ir.Plan, sizes: Mapping[str, int]) -> None:
        assert all(symbol.name in sizes for symbol in plan.symbols if symbol.value is None)
        self.old = plan
        self.sizes = completed(plan.symbols, sizes)
        self.scope = {symbol.name: of_atom(symbol) for symbol in plan.symbols}
        kept = [n for n, one in enumerate(plan.inputs) if isinstance(one, ir.TensorInput)]
        self.arguments = {-1: -1, **{old: new for new, old in enumerate(kept)}}

    def plan(self, name: str) -> ir.Plan:
        old = self.old
        return replace(
            old,
            name=name,
            symbols=(),
            inputs=tuple(
                replace(one, shape=self._all(one.shape), strides=self._all(one.strides))
                for one in old.inputs
                if not isinstance(one, ir.SymbolInput)
            ),
            buffers=tuple(map(self._buffer, old.buffers)),
            prepare=tuple(map(self._launch, old.prepare)),
            steps=tuple(map(self._step, old.steps)),
            views=tuple(map(self._call, old.views)),
            results=tuple(map(self._result, old.results)),
            equations=(),
        )

    def _buffer(self, buffer: ir.BufferSpec) -> ir.BufferSpec:
        return replace(
            buffer,
            shape=self._all(buffer.shape),
            strides=self._all(buffer.strides),
            source=self.arguments[buffer.source],
            offset=0,
        )

    def _step(self, step: ir.Step) -> ir.Step:
        return self._call(step) if isinstance(step, ir.AtenCall) else self._launch(step)

    def _launch(self, launch: ir.Launch) -> ir.Launch:
        tasks, scratch, work = self._all((launch.tasks, launch.scratch, launch.work))
        dims = self._all(launch.dims)
        return replace(launch, dims=dims, tasks=tasks, scratch=scratch, work=work)

    def _call(self, call: ir.AtenCall) -> ir.AtenCall:
        kwargs = tuple((name, self._argument(value)) for name, value in call.kwargs)
        return replace(call, args=tuple(map(self._argument, call.args)), kwargs=kwargs)

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, tuple):
            return argument
        if len(argument) == 2 and argument[0] == "dim":
            return evaluate(parse(argument[1], self.scope), self.sizes)
        if len(argument) == 2 and argument[0] in NUMBERS:
            return NUMBERS[argument[0]](evaluate(parse(argument[1], self.scope), self.sizes))
        return tuple(map(self._argument, argument))

    def _result(self, result: ir.Result) -> ir.Result:
        if not isinstance(result, ir.DimResult):
            return result
        return replace(result, value=self._dim(result.value))

    def _all(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(map(self._dim, dims))

    def _dim(self, dim: Dim) -> int:
        return evaluate(dim, self.sizes)
