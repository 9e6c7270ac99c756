"""Products on units that work on blocks of two by two: what is lowered for AArch64 gives what eager
does, run here by code of this machine, which has them in plain vectors."""

from __future__ import annotations

import re

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F32, I8, I32, U8, DType
from kernelmill.core.target.machine import PROFILES
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from tests.compiled import Argument, graph, interpreted, lowered, program
from tests.unit.lower.for_tiles import equal, texts
from tests.unit.lower.templates.matmul.test_tiled import numbers, product

V8_6 = PROFILES["aarch64-v8.6"]


def agrees(unit: str, made: Graph, *inputs: Argument, interpret: bool = False) -> None:
    found = lowered(made, V8_6)
    assert f'unit="{unit}"' in texts(found)
    expected = run_graph(made, list(inputs))
    equal(program(found)(*inputs), expected)
    if interpret:
        equal(interpreted(found, inputs), expected)


KINDS = [(I8, I32, "smmla"), (U8, U8, "ummla"), (BF16, F32, "bfmmla")]


@pytest.mark.parametrize(("dtype", "result", "unit"), KINDS, ids=str)
@pytest.mark.parametrize(
    ("turned", "weight", "m", "k", "n"),
    [
        ("", "", 33, 41, 30), ("a", "", 12, 37, 19), ("b", "b", 7, 50, 65), ("ab", "b", 5, 96, 40),
        ("a", "a", 21, 24, 33), ("", "b", 2, 9, 24), ("b", "", 70, 1, 17), ("", "", 9, 0, 16),
    ],
)  # fmt: skip
def test_sizes_and_memory_orders(
    dtype: DType, result: DType, unit: str, turned: str, weight: str, m: int, k: int, n: int
) -> None:
    a = numbers(dtype, m, k, turned="a" in turned)
    b = numbers(dtype, k, n, turned="b" in turned)
    made = product(dtype, result, turned, weight)(m, k, n)
    if k == 0:
        equal(program(lowered(made, V8_6))(a, b), run_graph(made, [a, b]))
        return
    agrees(unit, made, a, b, interpret=m * k * n < 12_000)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (9, 41, 17), (3, 0, 2), (0, 4, 4), (65, 8, 33)])
def test_symbolic_sizes(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    made = product(I8, I32)(sym("s0"), sym("s1"), sym("s2"))
    agrees("smmla", made, numbers(I8, m, k), numbers(I8, k, n))


def test_sums_of_a_deep_product_are_rows_between_its_parts() -> None:
    made = product(BF16, F32)(50, 40_000, 70)
    assert re.search(r"for i\d+ = 0 to 10000 step \d{4} ", texts(lowered(made, V8_6)))
    agrees("bfmmla", made, numbers(BF16, 50, 40_000).sign(), numbers(BF16, 40_000, 70).sign())


def test_extremes_of_bytes_do_not_saturate() -> None:
    made = product(I8, I32)(6, 1000, 20)
    for low, high in ((-128, -128), (127, -128), (-128, 127), (127, 127)):
        x, y = torch.full((6, 1000), low), torch.full((1000, 20), high)
        agrees("smmla", made, x.to(torch.int8), y.to(torch.int8))


def test_batches_operands_that_are_computed_and_the_epilogue() -> None:
    def build(b: GraphBuilder, x: Value, y: Value, bias: Value) -> Value:
        halves = [b.emit("cast", each, dtype=BF16) for each in (b.emit("exp", x), y)]
        sums = b.emit("matmul", *halves, dtype=F32)
        return b.emit("add", sums, b.emit("expand", bias, shape=sums.shape))

    made = graph(build, (F32, (3, 5, 13)), (F32, (3, 13, 20)), (F32, (20,)))
    assert len(lowered(made, V8_6).plan.steps) == 1
    x = torch.zeros(3, 5, 13).where(torch.rand(3, 5, 13) < 0.5, torch.tensor(-torch.inf))
    agrees("bfmmla", made, x, numbers(BF16, 3, 13, 20).float(), torch.rand(20), interpret=True)


@pytest.mark.parametrize(("m", "rows"), [(4, "bfdot"), (5, "bfmmla")])
def test_few_rows_read_a_matrix_that_is_no_weight_where_it_lies(m: int, rows: str) -> None:
    made = product(BF16, F32, "b")(m, 256, 64)
    agrees(rows, made, numbers(BF16, m, 256), numbers(BF16, 256, 64, turned=True))
    weight = product(BF16, F32, "b", "b")(m, 256, 64)
    assert 'unit="bfmmla"' in texts(lowered(weight, V8_6))
