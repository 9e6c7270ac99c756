"""Which gears share the kernels of the program for all sizes, and what their programs are."""

from __future__ import annotations

import pytest

from kernelmill.compiler import linking
from kernelmill.compiler.linking import GearSizes, LoweredProgram, sharing_programs
from kernelmill.compiler.report import GraphReport
from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.target.machine import PROFILES, Machine
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.lower.driver.lowered import Announce, Lowered
from kernelmill.lower.driver.program import lower_graph
from kernelmill.passes.quantize import Quantize
from kernelmill.plan.ir import TensorInput
from kernelmill.plan.verifier import verify_plan

MACHINE = PROFILES["x86-64-v4"]
S = sym("s")


def programs(graph: Graph, *sizes: int, machine: Machine = MACHINE) -> dict[int, LoweredProgram]:
    def lower(graph: Graph, announce: Announce | None) -> Lowered:
        return lower_graph(graph, machine, announce=announce)

    gears = [GearSizes(f"g_gear_{size}", {"s": size}) for size in sizes]
    found = sharing_programs(graph, GraphReport(graph.name), gears, lower)
    return {int(name.rpartition("_")[2]): program for name, program in found.items()}


def layer(rows: Dim, width: int = 768) -> Graph:
    builder = GraphBuilder("g")
    builder.dim_input(S)
    x = builder.input("x", F32, (rows, width))
    weight = builder.input("w", F32, (width, width), role=InputRole.PARAM)
    y = builder.emit("tanh", builder.emit("matmul", x, weight))
    z = builder.emit("matmul", y, weight)
    builder.graph.results = [z, rows]
    return builder.graph


def test_gears_of_few_and_of_many_rows_share_kernels() -> None:
    assert list(programs(layer(S * 8), 1, 2, 3, 17, 40)) == [1, 2, 3, 17, 40]


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_gears_of_int8_products_share_kernels(name: str) -> None:
    # Without an instruction for bytes, those of many rows read weights as wider numbers.
    graph = Quantize("int8").apply(layer(S * 8))
    found = programs(graph, 4, 8, 16, 32, machine=PROFILES[name])
    assert list(found) == [4, 8, 16, 32]


def test_gears_that_lose_too_much_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a loop with an unknown end costs more is more of a call with few rows.
    monkeypatch.setattr(linking, "_MOST_LOST", 0.0005)
    assert list(programs(layer(S * 8), 2, 3, 5, 8, 16)) == [5, 8, 16]
    assert not programs(layer(S * 8), 2, 8, 16)  # two are too few


def test_programs_have_the_kernels_of_all_sizes_and_plans_of_their_own() -> None:
    found = programs(layer(S * 8), 4, 8, 16)
    first, *others = (program.lowered for program in found.values())
    assert any(kernel.dims for kernel in first.kernels.values())
    assert all(other.kernels == first.kernels for other in others)
    for size, program in found.items():
        plan = program.lowered.plan
        verify_plan(plan)
        assert not plan.symbols and not program.graph.symbols
        (x, _) = plan.inputs
        assert isinstance(x, TensorInput) and x.shape == (size * 8, 768)
        assert plan.arena_bytes == size * 8 * 768 * 4
        assert program.report.name == plan.name == f"g_gear_{size}"


def test_small_work_is_not_shared() -> None:
    # What a loop with an unknown end costs more is much of a product that takes a microsecond.
    assert not programs(layer(S * 8, width=16), 4, 8, 16)


def test_it_takes_three_gears() -> None:
    assert not programs(layer(S * 8), 8, 16)


@pytest.mark.parametrize("columns", [S, S * 8])
def test_what_the_cost_model_cannot_compare_is_not_shared(columns: Dim) -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", F32, (512, 512))
    y = builder.input("y", F32, (512, columns))
    builder.graph.results = [builder.emit("matmul", x, y)]
    assert not programs(builder.graph, 64, 128, 256)


def test_reductions_over_a_symbolic_size_are_not_shared() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", F32, (4096, S))
    builder.graph.results = [builder.emit("reduce_sum", x, dims=(1,))]
    assert not programs(builder.graph, 64, 128, 256)


def test_a_symbol_without_a_gear_is_not_shared() -> None:
    builder = GraphBuilder("g")
    builder.dim_input(sym("t"))
    x = builder.input("x", F32, (S * 8, 768, sym("t")))
    builder.graph.results = [builder.emit("tanh", x)]
    assert not programs(builder.graph, 64, 128, 256)
