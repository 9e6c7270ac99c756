"""Inner loops of compiled kernels, as text."""

from __future__ import annotations

import re

from kernelmill.codegen.compile import assembly
from kernelmill.core.target.machine import PROFILES, Machine
from kernelmill.graph.ir import Graph
from kernelmill.kernel.ir import Kernel
from tests.compiled import lowered

NEON = PROFILES["aarch64-neon"]


def kernel_of(made: Graph, machine: Machine = NEON, type: str = "MatMul") -> Kernel:
    found = lowered(made, machine).kernels.values()
    (kernel,) = (kernel for kernel in found if kernel.type.startswith(type))
    return kernel


def loops(kernel: Kernel, word: str, machine: Machine = NEON) -> list[list[str]]:
    """The instructions of each innermost loop that has `word`, the one with most of them first."""
    text = assembly(kernel, machine.isa)
    found: list[list[str]] = []
    for block in re.split(r"\n(?=\.LBB)", text):
        label, lines = block.partition(":")[0], re.findall(r"^\t([a-z].*)$", block, re.MULTILINE)
        back = next(
            (n for n, line in enumerate(lines) if re.match(rf"[bj]\S*\t{label}\b", line)), None
        )
        if back is not None and any(line.startswith(word) for line in lines[:back]):
            found.append(lines[: back + 1])
    return sorted(found, key=lambda loop: -sum(line.startswith(word) for line in loop))
