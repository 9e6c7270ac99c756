"""The strides that torch's own trace gives the results of a program.

Fake tensors differ from eager's in dims of size 1, empty tensors and a few operators. Whoever
compiles what was traced can know no others: results with these strides are torch's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.programs.program import SEED, SIZE, Program, run


def traced_strides(
    program: Program, size: int, seed: int, symbolic: bool
) -> Mapping[str, tuple[int, ...]]:
    """By a result's name in an outcome; nothing where torch cannot trace the program so.
    `symbolic`: sizes other than 0 and 1 are traced as symbols."""
    found: dict[str, Any] = {SIZE: size, SEED: seed}
    with torch.no_grad():
        run(program.inputs, found)
        mode = FakeTensorMode(shape_env=ShapeEnv())
        tensors = {n: t for n, t in found.items() if isinstance(t, torch.Tensor)}
        found.update(
            {n: mode.from_tensor(t, static_shapes=not symbolic) for n, t in tensors.items()}
        )
        try:
            with enable_python_dispatcher(), mode:
                run(program.steps, found)
        except Exception:  # a size that depends on values, for one
            return {}
    strides = [tuple(map(int, found[name].stride())) for name in program.results]
    return {f"result {n}": known for n, known in enumerate(strides)}
