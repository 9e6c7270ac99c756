"""Programs lowered for the tile unit, run by code for this machine, which emulates it, and compared
with eager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from kernelmill.core.target.machine import Machine, host, profile
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.driver.lowered import Lowered
from tests.compiled import interpreted, lowered, program
from tests.tolerances import mismatch

AMX = profile("x86-64-v4-amx")


def eager_to_tiles(machine: Machine) -> Machine:
    """The same, but vectors are so slow that every product is worth tiles."""
    rates = {**dict(machine.rates.dots), "multiply_add": 1e-3, "vnni": 1e-3, "bf16_pairs": 1e-3}
    slow = replace(machine.rates, dots=tuple(rates.items()), stream=1e9, operations=1e9)
    return replace(machine, rates=slow)


ALWAYS = eager_to_tiles(AMX)


def texts(made: Lowered) -> str:
    return "\n".join(map(print_kernel, made.kernels.values()))


def equal(got: Sequence[object], expected: Sequence[object]) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        assert isinstance(mine, Tensor) and isinstance(theirs, Tensor)
        assert mismatch(mine, theirs) is None


def agrees(made: Graph, *inputs: Tensor, interpret: bool = False) -> Lowered:
    """Tiles are used, and the results are eager's."""
    found = lowered(made, ALWAYS)
    assert "tile_dot" in texts(found)
    expected = run_graph(made, list(inputs))
    results = [program(found, host())(*inputs)]
    if interpret:
        results.append(interpreted(found, inputs))
    for got in results:
        equal(got, expected)
    return found
