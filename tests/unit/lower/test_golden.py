"""What lowering makes of small graphs for each instruction set, as text.

Of all graphs the schedules and what statements their kernels have (NAME.schedules.txt); of a few
with short kernels, which show the instructions of each set, the whole kernels and the plan
(NAME.ISA.txt). A change of these files is a change of the kernels that everybody runs: read the
diff, then run with `--update-golden`. `kernelmill lower tests/golden/lower/NAME.graph` prints the
stages of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmill.core.target.machine import PROFILES
from kernelmill.graph.text import parse_graph
from kernelmill.kernel.ir import Instr, Kernel, statements_of
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.lower.driver.program import lower_graph
from kernelmill.lower.schedule.text import print_schedule
from kernelmill.passes import run_pipeline
from kernelmill.plan.text import print_plan

FOLDER = Path(__file__).parents[2] / "golden" / "lower"
GRAPHS = sorted(path.stem for path in FOLDER.glob("*.graph"))
WHOLE = ("chain", "few_columns", "int8_product", "scan", "small_product")
TARGETS = (
    "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "x86-64-v4-amx",
    "aarch64-neon", "aarch64-v8.6",
)  # fmt: skip


def lowered(name: str, target: str) -> Lowered:
    graph = run_pipeline(parse_graph((FOLDER / f"{name}.graph").read_text()))
    return lower_graph(graph, PROFILES[target])


def summary(made: Lowered) -> Iterator[str]:
    """For each kernel its operator, schedule, tasks, scratch and statements by their number."""
    for name, kernel in made.kernels.items():
        schedule = print_schedule(made.facts[name].schedule) if name in made.facts else "copy"
        yield f"{kernel.type}: {schedule}"
        yield f"  tasks {kernel.tasks}, scratch {kernel.scratch}"
        yield f"  {statements(kernel)}"


def statements(kernel: Kernel) -> str:
    names = (s.op if isinstance(s, Instr) else type(s).__name__ for s in statements_of(kernel.body))
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(names).items()))


def test_every_template_is_there() -> None:
    assert len(GRAPHS) >= 12


@pytest.mark.parametrize("name", GRAPHS)
def test_schedules(name: str, golden: Callable[[str, str], None]) -> None:
    lines: list[str] = []
    for target in TARGETS:
        lines += [f"== {target}", *summary(lowered(name, target))]
    golden(f"lower/{name}.schedules.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WHOLE)
def test_kernels_and_plan(name: str, target: str, golden: Callable[[str, str], None]) -> None:
    made = lowered(name, target)
    texts = [print_kernel(kernel) for kernel in made.kernels.values()]
    golden(f"lower/{name}.{target}.txt", "\n".join([*texts, print_plan(made.plan)]))
