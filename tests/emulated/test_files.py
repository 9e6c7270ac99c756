"""Files of `kernelmill.aot` that this machine makes are read on the emulated processor, and compute
there what the kernel interpreter and eager do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.artifact.container import KMILL, Artifact, read_artifact
from kernelmill.artifact.program_set import graph_texts
from kernelmill.artifact.tensors import tensors_of
from kernelmill.core.dim import evaluate
from kernelmill.core.target.isa import NAMED
from kernelmill.core.target.machine import PROFILES, host
from kernelmill.graph.text import parse_graph
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.passes import run_pipeline
from kernelmill.store.sealed import SealedFile
from tests.compiled import executed, lowered
from tests.emulation import Emulator
from tests.tolerances import mismatch


class Attends(nn.Module):
    """Projections, an attention and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.projection, self.norm = nn.Linear(32, 96), nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projection(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.norm(x + found.transpose(1, 2).flatten(2))


MODELS = {
    "layers": (nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 16)), (9, 24)),
    "halves": (nn.Sequential(nn.Linear(24, 40), nn.ReLU()).bfloat16(), (9, 24)),
    "images": (
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1)),
        (1, 3, 9, 9),
    ),
    "attention": (Attends(), (2, 10, 32)),
}


@pytest.mark.parametrize("name", MODELS)
def test_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulated: Emulator
) -> None:
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    model, shape = MODELS[name]
    x = torch.randn(shape, dtype=next(model.parameters()).dtype)
    target = host().isa.name
    assert target in NAMED
    path = kernelmill.aot.compile(model.eval(), (x,), path=tmp_path / "it.kmill", target=target)
    artifact = read_artifact(SealedFile(path, KMILL))
    digests = emulated.file(path)
    assert f"executor {host().isa.family} " in " ".join(digests)

    def run(kernel: Kernel, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> None:
        memory = [arrays[buffer.name] for buffer in kernel.buffers]
        sizes = [dims[symbol.name] for symbol in kernel.dims]
        tasks, scratch = evaluate(kernel.tasks, dims), evaluate(kernel.scratch, dims)
        image = artifact.objects[kernel.name]
        emulated.run(image, kernel.name, memory, sizes, [(0, tasks)], scratch)

    # Copies: those in the file cannot be written, and all memory comes back from the emulator.
    made, inputs = program_of(artifact), [x, *(each.clone() for each in tensors_of(artifact))]
    assert set(made.kernels) <= set(digests)
    with torch.no_grad():
        expected = model(x)
    for (result,) in (executed(made, inputs, run), executed(made, inputs, run_kernel)):
        assert isinstance(result, Tensor) and mismatch(result, expected) is None


def program_of(artifact: Artifact) -> Lowered:
    """What its graph is lowered to for the target."""
    (text,) = graph_texts(artifact)
    return lowered(run_pipeline(parse_graph(text)), PROFILES[host().isa.name])
