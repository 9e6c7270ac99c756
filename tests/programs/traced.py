"""The shapes and strides that torch's own trace gives the results of a program.

Fake tensors differ from eager's in dims of size 1, empty tensors and a few operators (eager's
`pixel_unshuffle` leaves a tensor without elements in its own shape). Whoever compiles what was
traced can know no others: results with these are torch's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.programs.program import SEED, SIZE, Program, run

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""The shape and the strides of a result."""


def traced_layouts(
    program: Program,
    size: int,
    seed: int,
    symbolic: bool,
    called_with: int | None = None,
    functional: bool = False,
) -> Mapping[str, Layout]:
    """By a result's name in an outcome; nothing where torch cannot trace the program so.
    `symbolic`: sizes other than 0 and 1 are traced as symbols. `called_with`: the size of a call
    that the trace for `size` serves, for which its symbols are what the arguments say.
    `functional`: writes are traced as new tensors, as AOTAutograd does (`index_put` gives a dim of
    size 1 another stride than `index_put_`)."""
    found: dict[str, Any] = {SIZE: size, SEED: seed}
    with torch.no_grad():
        run(program.inputs, found)
        mode = FakeTensorMode(shape_env=ShapeEnv())
        tensors = {n: t for n, t in found.items() if isinstance(t, torch.Tensor)}
        fakes = {n: mode.from_tensor(t, static_shapes=not symbolic) for n, t in tensors.items()}
        values = {} if called_with is None else _values(program, fakes, called_with, seed)
        found.update(fakes)
        try:
            with enable_python_dispatcher(), mode:
                results = _run(program, found, functional)
            layouts = [
                (
                    tuple(_number(s, values) for s in result.shape),
                    tuple(_number(s, values) for s in result.stride()),
                )
                for result in results
            ]
        except Exception:  # a size that depends on values, for one
            return {}
    return {f"result {n}": known for n, known in enumerate(layouts)}


def _run(program: Program, found: dict[str, Any], functional: bool) -> list[torch.Tensor]:
    """The results of the program's steps."""
    names = [name for name, value in found.items() if isinstance(value, torch.Tensor)]

    def steps(*tensors: torch.Tensor) -> list[torch.Tensor]:
        made = {**found, **dict(zip(names, tensors, strict=True))}
        run(program.steps, made)
        return [made[name] for name in program.results]

    traced = torch.func.functionalize(steps) if functional else steps
    return traced(*(found[name] for name in names))


def _values(program: Program, fakes: Mapping[str, Any], size: int, seed: int) -> dict[Any, int]:
    """What the symbols of traced arguments are at another size."""
    called: dict[str, Any] = {SIZE: size, SEED: seed}
    run(program.inputs, called)
    return {
        traced.node.expr: actual
        for name, fake in fakes.items()
        for traced, actual in zip(fake.shape, called[name].shape, strict=True)
        if isinstance(traced, torch.SymInt) and traced.node.expr.is_Symbol
    }


def _number(dim: Any, values: Mapping[Any, int]) -> int:
    known = isinstance(dim, int) or not values
    return int(dim) if known else int(dim.node.expr.subs(values))
