"""The kernels of the golden graphs compute on the emulated processor what the kernel interpreter
and eager do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import DType, to_torch
from kernelmill.core.target.machine import host
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.passes import run_pipeline
from tests.compiled import executed, lowered, run_machine_code
from tests.emulation import Emulator
from tests.tolerances import mismatch

FOLDER = Path(__file__).parents[1] / "golden" / "lower"
GRAPHS = sorted(path.stem for path in FOLDER.glob("*.graph"))


def inputs_of(graph: Graph) -> list[Tensor]:
    """Random arguments; whole numbers are small, so that they serve as indices."""
    found: list[Tensor] = []
    for entry in graph.tensor_inputs():
        kind = entry.value.type
        shape, dtype = [evaluate(size, {}) for size in kind.shape], to_torch(kind.dtype)
        if dtype.is_floating_point:
            found.append((torch.randn(shape) / 2).to(dtype))
        else:
            found.append(torch.randint(0, 2, shape).to(dtype))
    return found


def both_ways(kernel: Kernel, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> None:
    """A launch on the emulated processor; of a few tasks the interpreter says what they write."""
    count = evaluate(kernel.tasks, dims)
    meant = {name: array.copy() for name, array in arrays.items()}
    run_kernel(kernel, meant, dims, range(1))
    if count > 1:
        run_kernel(kernel, meant, dims, range(count - 1, count))
    before = {name: array.copy() for name, array in arrays.items()}
    run_machine_code(host(), kernel, arrays, dims)
    written = 0
    for buffer in kernel.buffers:
        if buffer.access == "in":
            continue
        was, want, got = (x[buffer.name] for x in (before, meant, arrays))
        changed = was.view(np.uint8).reshape(len(was), -1) != want.view(np.uint8).reshape(
            len(want), -1
        )
        places = changed.any(axis=1)
        written += int(places.sum())
        wrong = mismatch(*(_tensor(x[places], buffer.dtype) for x in (got, want)))
        assert wrong is None, f"{kernel.name}, {buffer.name}: {wrong}"
    assert written > 0


def _tensor(array: np.ndarray, dtype: DType) -> Tensor:
    return torch.from_numpy(array).view(to_torch(dtype))


@pytest.mark.parametrize("name", GRAPHS)
def test_golden_kernels(name: str, emulated: Emulator) -> None:
    graph = run_pipeline(parse_graph((FOLDER / f"{name}.graph").read_text()))
    inputs = inputs_of(graph)
    expected = run_graph(graph, [tensor.clone() for tensor in inputs])
    before = emulated.counts()
    got = executed(lowered(graph), inputs, both_ways)
    after = emulated.counts()
    assert after["objects"] - before["objects"] == after["placed"] - before["placed"] > 0
    for mine, theirs in zip(got, expected, strict=True):
        assert isinstance(mine, Tensor) and isinstance(theirs, Tensor)
        assert mismatch(mine, theirs) is None
