"""What lowering makes of small graphs for each instruction set, as text.

A change of these files is a change of the kernels that everybody runs: read the diff, then run with
`--update-golden`. `kernelmill lower tests/golden/lower/NAME.graph` prints the stages of one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmill.core.target.machine import PROFILES
from kernelmill.graph.parser import parse_graph
from kernelmill.kernel.printer import print_kernel
from kernelmill.lower.driver.program import lower_graph
from kernelmill.passes import run_pipeline
from kernelmill.plan.printer import print_plan

FOLDER = Path(__file__).parents[2] / "golden" / "lower"
GRAPHS = sorted(path.stem for path in FOLDER.glob("*.graph"))
TARGETS = (
    "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "x86-64-v4-amx",
    "aarch64-neon", "aarch64-v8.6",
)  # fmt: skip


def test_every_template_is_there() -> None:
    assert len(GRAPHS) >= 12


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_and_plan(name: str, target: str, golden: Callable[[str, str], None]) -> None:
    graph = run_pipeline(parse_graph((FOLDER / f"{name}.graph").read_text()))
    lowered = lower_graph(graph, PROFILES[target])
    texts = [print_kernel(kernel) for kernel in lowered.kernels.values()]
    golden(f"lower/{name}.{target}.txt", "\n".join([*texts, print_plan(lowered.plan)]))
