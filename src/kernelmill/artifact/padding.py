"""Calls that are padded to a gear, as data: {"inputs": [[NUMBER, SHAPE, STRIDES]], ...}.

Dims are texts. Besides what plan/padding.py says there are the sizes that are the same in all gears
(`fixed`), the shapes of all tensor arguments, and what the trace takes for granted of the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelmill.artifact.manifest import Condition
from kernelmill.artifact.sizes import Conditions
from kernelmill.core.dim import Dim, parse, sym
from kernelmill.plan.padding import PaddedInput, PaddedResult, Padding
from kernelmill.runtime.geared import GearedProgram
from kernelmill.runtime.padded_calls import PaddedCalls
from kernelmill.runtime.program import Program

Bounds = Sequence[tuple[str, int | None, int | None]]
"""(symbol, least, most), None where there is none."""


def padding_data(
    calls: PaddedCalls, bounds: Bounds, conditions: Sequence[Condition]
) -> dict[str, Any]:
    """The calls as JSON; `padded_calls` makes them again."""
    padding = calls.padding
    return {
        "inputs": [[e.number, _texts(e.shape), _texts(e.strides)] for e in padding.inputs],
        "results": [
            [e.number, [_texts(axis) for axis in e.axes], _texts(e.strides)]
            for e in padding.results
        ],
        "sizes": padding.sizes,
        "size_results": [[number, str(dim)] for number, dim in padding.size_results],
        "ranges": [
            [name, low, None if high is None else str(high)] for name, low, high in padding.ranges
        ],
        "fixed": dict(calls.fixed),
        "tensors": [[number, _texts(shape)] for number, shape in calls.tensors],
        "bounds": bounds,
        "conditions": conditions,
    }


def padded_calls(
    data: Mapping[str, Any], program: GearedProgram, dynamic: Program | None = None
) -> PaddedCalls:
    """Runs calls at the smallest gear of `program` that holds their sizes, or by the `dynamic`
    program where that is estimated to take less time."""
    names = {*program.symbols, *data["fixed"], *(name for name, _, _ in data["ranges"])}
    scope: dict[str, Dim] = {name: sym(name) for name in names}

    def dims(texts: Sequence[str]) -> tuple[Dim, ...]:
        return tuple(parse(text, scope) for text in texts)

    padding = Padding(
        tuple(PaddedInput(n, dims(shape), dims(strides)) for n, shape, strides in data["inputs"]),
        tuple(
            PaddedResult(n, tuple(dims(axis) for axis in axes), dims(strides))
            for n, axes, strides in data["results"]
        ),
        tuple((number, symbol) for number, symbol in data["sizes"]),
        tuple((number, parse(text, scope)) for number, text in data["size_results"]),
        tuple(
            (name, low, None if high is None else parse(high, scope))
            for name, low, high in data["ranges"]
        ),
    )
    tensors = tuple((number, dims(shape)) for number, shape in data["tensors"])
    bounds: Bounds = [(name, low, high) for name, low, high in data["bounds"]]
    conditions = Conditions([(r, a, b) for r, a, b in data["conditions"]], scope)

    def broken(values: Mapping[str, int]) -> str:
        for name, low, high in bounds:
            value = values.get(name)
            if value is not None and (
                (low is not None and value < low) or (high is not None and value > high)
            ):
                return f"the trace takes {name} for one in [{low}, {high}]"
        return conditions.broken(values)

    return PaddedCalls(padding, program, data["fixed"], tensors, broken, dynamic)


def _texts(dims: Sequence[Dim]) -> list[str]:
    return [str(dim) for dim in dims]
