"""No stage of compiling takes more than n log n steps for n nodes, whatever they are chained to.

Steps are lines of kernelmill that Python executes, passes of loops included, counted by a trace
function; they do not depend on the machine's load.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import kernelmill
from kernelmill.codegen import llvm_ir
from kernelmill.core.dtype import InputRole
from kernelmill.core.target.machine import host, profile
from kernelmill.frontend.importer import import_fx
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.text import print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.kernel.text import print_kernel
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.lower.driver.program import lower_graph
from kernelmill.passes import run_pipeline
from kernelmill.plan.text import print_plan
from kernelmill.plan.verifier import verify_plan
from tests.compiled import program

Chain = Callable[[int, Tensor, Tensor], Any]

SOURCES = str(Path(kernelmill.__file__).parent)
TARGET = profile("x86-64-v4")
FEW = 5000
"""Steps that a stage may take however it grows: most of them are for what it begins with."""


def slice_writes(n: int, x: Tensor, y: Tensor) -> Any:
    x = x.clone()
    for i in range(n):
        x[i % 5 : i % 5 + 3, i % 4 : i % 4 + 2] = float(i)
    return x + 1


def row_writes(n: int, x: Tensor, y: Tensor) -> Any:
    x = x.clone()
    for i in range(n):
        x[i % 8] = y[i % 7]
    return x


def shared_operands(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = x + x * y
    return x


def shifted(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = torch.cat([x[1:] * 2, x[:1] + y[:1]])
    return x


def rolled(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = torch.roll(torch.roll(x, 1, 0), 3, 1)
    return x


def longer(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = torch.cat([x, y[:1]])
    return x


def chosen(n: int, x: Tensor, y: Tensor) -> Any:
    for i in range(n):
        x = torch.where(x > i, x, y)
    return x


def viewed(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = (x.reshape(4, 16).t().reshape(8, 8) + x.t()) * 0.5
    return x


def flipped(n: int, x: Tensor, y: Tensor) -> Any:
    for i in range(n):
        x = x.flip(i % 2).t().reshape(2, 4, 8).permute(1, 0, 2).reshape(8, 8)
    return x + y


def residuals(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = x + torch.relu(x * y)
    return x


def reduced(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = x - x.mean(-1, keepdim=True) * y
    return x


def reduced_both_ways(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = (x - x.amax(0) + x.sum(1)) * 0.1
    return x


def read_by_many(n: int, x: Tensor, y: Tensor) -> Any:
    z = (x @ y).softmax(-1)
    return [(z * i).sum(-1) for i in range(n)]


def joined_from_many(n: int, x: Tensor, y: Tensor) -> Any:
    return torch.cat([x * i for i in range(n)])


def summed_from_many(n: int, x: Tensor, y: Tensor) -> Any:
    return sum((x[i % 8] * i + y[i % 7] for i in range(n)), y[0])


def products(n: int, x: Tensor, y: Tensor) -> Any:
    for _ in range(n):
        x = torch.relu(x @ y) * 0.1 + x
    return x


def follows_a_product(n: int, x: Tensor, y: Tensor) -> Any:
    z = x @ y
    for i in range(n):
        z = torch.relu(z + i)
    return z


CHAINS: tuple[tuple[Chain, int], ...] = (
    (slice_writes, 60), (row_writes, 60), (shared_operands, 150), (shifted, 40), (rolled, 60),
    (longer, 100), (chosen, 100), (viewed, 60), (flipped, 60), (reduced, 50),
    (reduced_both_ways, 40), (read_by_many, 60), (joined_from_many, 300), (summed_from_many, 100),
    (products, 120), (follows_a_product, 150), (residuals, 100),
)  # fmt: skip
"""With lengths from which on their kernels are as large as they get."""


@dataclass
class Work:
    """Steps of each stage, and what came of it."""

    steps: dict[str, int] = field(default_factory=dict[str, int])
    lowered: Lowered | None = None

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        count = 0

        def line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            count += event == "line"
            return line

        def call(frame: FrameType, event: str, _: object) -> Any:
            return line if frame.f_code.co_filename.startswith(SOURCES) else None

        before = sys.gettrace()
        sys.settrace(call)
        try:
            yield
        finally:
            sys.settrace(before)
            self.steps[name] = count


def arguments() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(8, 8, generator=generator) for _ in range(2))
    return x, y * 0.1


def compiled(chain: Chain, n: int) -> Work:
    """The chain taken through all stages but LLVM's; its results are right."""
    work = Work()
    given = arguments()

    def function(x: Tensor, y: Tensor) -> list[Any]:
        made = chain(n, x, y)
        return list(made) if isinstance(made, list) else [made]

    functional = torch.func.functionalize(function, remove="mutations_and_views")
    gm = make_fx(functional, tracing_mode="fake")(*given)
    with work.stage("import"):
        graph = import_fx(gm, "chain", [InputRole.USER, InputRole.USER], ["x", "y"]).graph
    with work.stage("passes"):
        graph = run_pipeline(graph)
    with work.stage("verify graph"):
        verify_graph(graph)
    with work.stage("print graph"):
        print_graph(graph)
    with work.stage("lower"):
        made = work.lowered = lower_graph(graph, TARGET)
    kernels = list(made.kernels.values())
    with work.stage("verify kernels"):
        for kernel in kernels:
            verify_kernel(kernel)
    with work.stage("print kernels"):
        for kernel in kernels:
            print_kernel(kernel)
    with work.stage("plan"):
        verify_plan(made.plan)
        print_plan(made.plan)
    with work.stage("LLVM text"):
        for kernel in kernels:
            llvm_ir(kernel, TARGET.isa)
    return work


@pytest.mark.parametrize(("chain", "n"), CHAINS, ids=[chain.__name__ for chain, _ in CHAINS])
def test_twice_the_nodes_take_twice_the_steps(chain: Chain, n: int) -> None:
    one, two = compiled(chain, n).steps, compiled(chain, 2 * n).steps
    growth = {name: two[name] / one[name] for name in one if two[name] > FEW}
    assert growth
    assert {name: ratio for name, ratio in growth.items() if ratio > 2.3} == {}


def test_three_thousand_nodes_of_slice_writes_are_a_few_kernels() -> None:
    writes = 200
    work = compiled(slice_writes, writes)
    assert work.lowered is not None
    assert len(work.lowered.plan.steps) <= writes // 8
    assert sum(work.steps.values()) < 6_000_000


@pytest.mark.parametrize(
    ("chain", "nodes_each"),
    [(slice_writes, 6), (longer, 1), (chosen, 2), (residuals, 3), (flipped, 5)],
)
def test_three_thousand_nodes_take_ten_times_the_steps_of_three_hundred(
    chain: Chain, nodes_each: int
) -> None:
    few, many = (sum(compiled(chain, n // nodes_each).steps.values()) for n in (300, 3000))
    assert many / few <= 10 * math.log(3000) / math.log(300)


@pytest.mark.parametrize(("chain", "n"), CHAINS, ids=[chain.__name__ for chain, _ in CHAINS])
def test_chains_compute_what_eager_computes(chain: Chain, n: int) -> None:
    n = min(n, 40)
    x, y = arguments()
    expected = chain(n, x.clone(), y)
    expected = expected if isinstance(expected, list) else [expected]
    functional = torch.func.functionalize(
        lambda x, y: list(r) if isinstance(r := chain(n, x, y), list) else [r],
        remove="mutations_and_views",
    )
    gm = make_fx(functional, tracing_mode="fake")(x, y)
    graph = run_pipeline(import_fx(gm, "chain", [InputRole.USER, InputRole.USER], ["x", "y"]).graph)
    found = program(lower_graph(graph, host()))(x, y)
    torch.testing.assert_close(list(found), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(list(run_graph(graph, [x, y])), expected, rtol=1e-4, atol=1e-5)
