"""Products of bf16: two numbers to a word where the processor multiplies words, else widened."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F32, InputRole
from kernelmill.core.target.isa import Isa
from kernelmill.core.target.machine import Machine, committed
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.text import print_kernel
from tests.compiled import check, graph, interpreted, lowered, run_compiled, whole
from tests.tolerances import mismatch
from tests.unit.codegen.native import TARGETS as LEVELS

TARGETS = [committed(isa) for isa in LEVELS.values()]
PAIRED = Machine(Isa("x86_64-unknown-linux-gnu", "x86-64-v4", ("avx512bf16",)))


def matmul(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.emit("matmul", x, y, dtype=BF16)


def turned(b: GraphBuilder, x: Value, y: Value) -> Value:
    return matmul(b, b.emit("permute", x, dims=(1, 0)), b.emit("permute", y, dims=(1, 0)))


def paired(made: Graph) -> bool:
    """Whether a processor that has the instruction gets it."""
    return "= dot(" in "".join(map(print_kernel, lowered(made, PAIRED).kernels.values()))


def agrees(made: Graph, *inputs: Tensor) -> None:
    """Machine code does, widened and as words, and the interpreter with words."""
    check(made, *inputs, targets=TARGETS)
    (expected,) = run_graph(made, list(inputs))
    (got,) = interpreted(lowered(made, PAIRED), inputs)
    assert mismatch(got, expected) is None


SIZES = [
    (2, 1, 1), (1, 64, 40), (5, 23, 19), (20, 7, 65), (9, 130, 1), (3, 0, 4), (0, 3, 4), (3, 4, 0),
    (33, 128, 48), (3, 64, 50),
]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_sizes(m: int, k: int, n: int) -> None:
    agrees(graph(matmul, (BF16, (m, k)), (BF16, (k, n))), whole(BF16, m, k), whole(BF16, k, n))


@pytest.mark.parametrize(("m", "k", "n"), [(5, 23, 19), (33, 64, 48), (2, 64, 40)])
def test_the_other_memory_order(m: int, k: int, n: int) -> None:
    made = graph(turned, (BF16, (k, m)), (BF16, (n, k)))
    assert paired(made)
    agrees(made, whole(BF16, k, m), whole(BF16, n, k))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (9, 41, 17), (3, 0, 2), (65, 8, 33)])
def test_symbolic_sizes(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    made = graph(matmul, (BF16, (sym("s0"), sym("s1"))), (BF16, (sym("s1"), sym("s2"))))
    assert paired(made)
    check(made, whole(BF16, m, k), whole(BF16, k, n), targets=TARGETS)


def test_one_vector_keeps_its_denormals() -> None:
    """It is multiplied in f32: its speed is that of memory, and eager keeps them too."""
    for m, n in ((1, 20), (20, 1)):
        made = graph(matmul, (BF16, (m, 16)), (BF16, (16, n)))
        assert not paired(made)
        tiny = torch.full((m, 16), 2.0**-130, dtype=torch.bfloat16)
        check(made, tiny, torch.full((16, n), 2.0**100, dtype=torch.bfloat16))


def test_a_sum_of_many_products_stays_in_f32() -> None:
    made = graph(matmul, (BF16, (6, 3000)), (BF16, (3000, 33)))
    x, y = torch.rand(6, 3000).bfloat16(), torch.rand(3000, 33).bfloat16()
    (got,) = run_compiled(made, [x, y])
    exact = x.double() @ y.double()
    assert ((got.double() - exact).abs() <= exact * 2.0**-8).all()


def with_weight(shape: tuple[int, int], dims: tuple[int, int], k: int) -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", BF16, (7, k))
    weight = b.input("w", BF16, shape, role=InputRole.PARAM)
    b.graph.results = [matmul(b, x, b.emit("permute", weight, dims=dims))]
    return b.graph


@pytest.mark.parametrize("dims", [(0, 1), (1, 0)])
@pytest.mark.parametrize("k", [64, 37])
def test_weights_are_packed_as_they_are(k: int, dims: tuple[int, int]) -> None:
    shape = (k, 50) if dims == (0, 1) else (50, k)
    graph = with_weight(shape, dims, k)
    agrees(graph, whole(BF16, 7, k), whole(BF16, *shape))
    made = lowered(graph, PAIRED)
    packed = [buffer for buffer in made.plan.buffers if buffer.kind == "packed"]
    assert [buffer.dtype for buffer in packed] == [BF16] and len(made.plan.prepare) == 1


def test_operands_that_are_cast() -> None:
    """As autocast does: f32 is rounded on its way into the product, both operands and a weight."""

    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        return matmul(b, b.emit("cast", x, dtype=BF16), b.emit("cast", y, dtype=BF16))

    made = graph(build, (F32, (9, 24)), (F32, (24, 40)))
    assert paired(made)
    agrees(made, torch.randn(9, 24), torch.randn(24, 40))


def test_batches_and_the_epilogue() -> None:
    def build(b: GraphBuilder, x: Value, y: Value, bias: Value) -> Value:
        sums = matmul(b, x, y)
        return b.emit("add", sums, b.emit("expand", bias, shape=sums.shape))

    made = graph(build, (BF16, (3, 5, 12)), (BF16, (3, 12, 20)), (BF16, (20,)))
    assert paired(made) and len(lowered(made).plan.steps) == 1
    agrees(made, whole(BF16, 3, 5, 12), whole(BF16, 3, 12, 20), whole(BF16, 20))
