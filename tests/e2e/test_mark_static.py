"""torch._dynamo.mark_static and mark_static_address, with dynamic=True around them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import mark_static, mark_static_address

from kernelmill import get_backend
from kernelmill.compiler.pipeline import Compiler
from kernelmill.compiler.report import GraphReport
from kernelmill.config import CompilerConfig
from kernelmill.graph.ir import Graph
from kernelmill.runtime.program import Program
from tests.compiled import reported
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The programs that are compiled from here on."""
    found: list[Program] = []
    compile = Compiler.compile

    def spy(self: Compiler, graph: Graph) -> object:
        made = compile(self, graph)
        assert isinstance(made.program, Program)
        found.append(made.program)
        return made

    monkeypatch.setattr(Compiler, "compile", spy)
    return found


def kinds(reports: list[GraphReport]) -> dict[str, bool]:
    """For each operator whether it is in a kernel for all sizes."""
    return {
        operator: kernel.kind == "dynamic"
        for report in reports
        for kernel in report.kernels
        for operator in kernel.operators
    }


def test_all_static_is_a_static_program(programs: list[Program]) -> None:
    linear = nn.Linear(8, 8)

    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(linear(x)) + y.sum(0)

    compiled = torch.compile(function, backend=get_backend(), dynamic=True, fullgraph=True)
    x, y = torch.randn(4, 8), torch.randn(3, 8)
    mark_static(x)
    mark_static(y)
    with torch.no_grad():
        assert_close(compiled(x, y), function(x, y))
    (program,) = programs
    assert not program.plan.symbols


def test_what_does_not_depend_on_data_is_static(programs: list[Program]) -> None:
    linear = nn.Linear(8, 8)

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = torch.softmax(linear(x), -1) * 2
        found = torch.nonzero(y).float() * 3 + 1
        return scores, found, scores.sum() + torch.masked_select(y, y > 1).cos()

    backend, reports = reported()
    compiled = torch.compile(function, backend=backend, dynamic=True, fullgraph=True)
    x, y = torch.randn(4, 8), torch.tensor([[1, 0, 2], [0, 0, 3]])
    mark_static(x)
    mark_static(y)
    with torch.no_grad():
        for ours, eager in zip(compiled(x, y), function(x, y), strict=True):
            assert_close(ours, eager)
    dynamic = kinds(reports)
    assert not dynamic["matmul"] and not dynamic["exp2"] and not dynamic["reduce_maxnum"]
    assert dynamic["cos"]
    (program,) = programs
    assert sum(symbol.value is None for symbol in program.plan.symbols) == 2


def test_a_static_address_is_packed(programs: list[Program]) -> None:
    config = CompilerConfig()
    config.float32_pieces = False  # which are more than the weight's own bytes
    backend = get_backend(compiler_config=config)
    compiled = torch.compile(torch.matmul, backend=backend, fullgraph=True)
    # 768 columns are whole panels on every processor.
    x, weight = torch.randn(8, 256), torch.randn(256, 768) / 16
    mark_static_address(weight)
    with torch.no_grad():
        for _ in range(3):
            assert_close(compiled(x, weight), x @ weight)
        (program,) = programs
        assert program.report()["packed_bytes"] == weight.nbytes
        assert program.report()["repacks"] == 1
        weight.mul_(2)
        assert_close(compiled(x, weight), x @ weight)
        assert program.report()["repacks"] == 2
