"""Tables of embeddings become small integers with a scale for each row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F16, F32, F64, I64, DType, InputRole, to_torch
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.passes.quantize import Quantize as Pass
from tests.compiled import check, interpreted, lowered, program
from tests.machine_code import runs_here
from tests.unit.passes.test_quantize import SMALL, TARGETS, assert_near, quantised

ROWS, WIDTH = 40, 33


def lookup(
    dtype: DType = F32, rows: int = ROWS, role: InputRole = InputRole.PARAM,
    places: object = (2, 3), **changed: object,
) -> Graph:  # fmt: skip
    b = GraphBuilder("g")
    index = b.input("index", I64, places)  # type: ignore[reportArgumentType]
    table = b.input("words.weight", dtype, (rows, WIDTH), role=role)
    attrs = {"dims": (0,), "at": 0, "unsigned": True, **changed}
    b.graph.results = [b.emit("index", table, index, **attrs)]  # type: ignore[reportArgumentType]
    return b.graph


def by_definition(index: Tensor, table: Tensor) -> Tensor:
    scales = (table.float().abs().amax(1, keepdim=True) / 127).clamp(min=SMALL)
    return ((table.float() * scales.reciprocal()).round() * scales)[index].to(table.dtype)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("scheme", ["int8", "int8-weights"])
def test_the_formula(scheme: str, dtype: DType) -> None:
    torch.manual_seed(0)
    table = torch.randn(ROWS, WIDTH).to(to_torch(dtype))
    table[3] = 0
    index = torch.tensor([[0, 3, ROWS - 1], [3, 7, 7]])
    graph = lookup(dtype)
    made = quantised(graph, {"words": scheme})
    (found,) = run_graph(made, [index, table])
    assert made is not graph and isinstance(found, Tensor)
    assert torch.equal(found, by_definition(index, table))


@pytest.mark.parametrize("target", TARGETS)
def test_code_agrees_on_every_processor(target: str) -> None:
    machine, table = profile(target), torch.randn(ROWS, WIDTH)
    index = torch.randint(0, ROWS, (2, 3))
    made = lowered(quantised(lookup(), "int8"), machine)
    runs = runs_here(machine.isa)
    (found,) = program(made, machine)(index, table) if runs else interpreted(made, [index, table])
    assert isinstance(found, Tensor)
    assert_near(found, by_definition(index, table), F32)


def test_any_number_of_places_and_none() -> None:
    graph = quantised(lookup(places=(sym("s", 0),)), "int8")
    for count in (0, 1, 5, 50):
        check(graph, torch.randint(0, ROWS, (count,)), torch.randn(ROWS, WIDTH))


def test_a_product_that_shares_the_table_shares_its_numbers() -> None:
    b = GraphBuilder("g")
    index, x = b.input("index", I64, (4,)), b.input("x", F32, (4, WIDTH))
    table = b.input("words.weight", F32, (ROWS, WIDTH), role=InputRole.PARAM)
    rows = b.emit("index", table, index, dims=(0,), at=0, unsigned=True)
    b.graph.results = [rows, b.emit("matmul", x, b.emit("permute", table, dims=(1, 0)))]
    made = quantised(b.graph, "int8-weights")
    assert sum(node.op == "reduce_max" for node in made.nodes) == 1
    check(made, torch.randint(0, ROWS, (4,)), torch.randn(4, WIDTH), torch.randn(ROWS, WIDTH))


@pytest.mark.parametrize(
    "graph",
    [
        lookup(rows=3), lookup(F64), lookup(role=InputRole.USER), lookup(unsigned=False),
        lookup(dims=(1,), at=1),
    ],
)  # fmt: skip
def test_what_stays_as_it_is(graph: Graph) -> None:
    assert Pass("int8").apply(graph) is graph
    assert Pass("int4-weights").apply(lookup()).nodes[0].op == "index"
    assert Pass({"other": "int8"}).apply(lookup()).nodes[0].op == "index"
