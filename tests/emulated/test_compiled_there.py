"""An AArch64 machine compiles for itself and for x86-64, to the same bytes as this machine does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill import codegen
from kernelmill.core.target.isa import NAMED
from kernelmill.core.target.machine import PROFILES
from kernelmill.graph.text import parse_graph
from kernelmill.passes import run_pipeline
from tests.compiled import lowered
from tests.emulation import Emulator

FOLDER = Path(__file__).parents[1] / "golden" / "lower"


@pytest.mark.parametrize("name", ["softmax", "int8_product"])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4-bf16", "aarch64-v8.6"])
def test_the_same_objects(name: str, target: str, emulated: Emulator) -> None:
    graph = run_pipeline(parse_graph((FOLDER / f"{name}.graph").read_text()))
    kernels = lowered(graph, PROFILES[target]).kernels.values()
    assert kernels
    for kernel in kernels:
        here = codegen.compile_kernel(kernel, NAMED[target])
        assert emulated.compile(kernel, NAMED[target]) == here
