"""Products of i8: four bytes to a word, whatever the sizes, the memory order and the processor."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import F32, I8, I32, DType, InputRole
from kernelmill.core.target.machine import committed, profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.text import print_kernel
from tests.compiled import check, graph, interpreted, lowered, program, whole
from tests.unit.codegen.native import TARGETS as LEVELS

TARGETS = [committed(isa) for isa in LEVELS.values()]


def matmul(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.emit("matmul", x, y, dtype=I32)


def turned(b: GraphBuilder, x: Value, y: Value) -> Value:
    return matmul(b, b.emit("permute", x, dims=(1, 0)), b.emit("permute", y, dims=(1, 0)))


def full(*shape: int) -> torch.Tensor:
    return whole(I8, *shape, low=-128, high=128)


SIZES = [
    (1, 1, 1), (1, 64, 40), (5, 23, 19), (20, 7, 65), (9, 130, 1), (1, 130, 9), (3, 0, 4),
    (0, 3, 4), (3, 4, 0), (33, 128, 96), (70, 66, 17),
]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_sizes(m: int, k: int, n: int) -> None:
    check(graph(matmul, (I8, (m, k)), (I8, (k, n))), full(m, k), full(k, n), targets=TARGETS)


@pytest.mark.parametrize(("m", "k", "n"), [(5, 23, 19), (33, 128, 96), (1, 64, 40)])
def test_the_other_memory_order(m: int, k: int, n: int) -> None:
    made = graph(turned, (I8, (k, m)), (I8, (n, k)))
    check(made, full(k, m), full(n, k), targets=TARGETS)


def test_the_interpreter_agrees() -> None:
    for build, x, y in ((matmul, full(6, 22), full(22, 33)), (turned, full(24, 6), full(33, 24))):
        check(graph(build, (I8, x.shape), (I8, y.shape)), x, y, interpret=True)


def test_the_extremes_do_not_saturate() -> None:
    made = graph(matmul, (I8, (3, 1000)), (I8, (1000, 20)))
    for a, b in ((-128, -128), (127, -128), (-128, 127), (127, 127)):
        x, y = torch.full((3, 1000), a), torch.full((1000, 20), b)
        check(made, x.to(torch.int8), y.to(torch.int8), targets=TARGETS)


def test_sums_in_blocks_of_a_deep_product() -> None:
    made = graph(matmul, (I8, (50, 40_000)), (I8, (40_000, 70)))
    check(made, full(50, 40_000), full(40_000, 70))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (9, 41, 17), (3, 0, 2), (0, 4, 4), (65, 8, 33)])
def test_symbolic_sizes(sizes: tuple[int, int, int]) -> None:
    m, k, n = sym("s0"), sym("s1"), sym("s2")
    shape: tuple[Dim, ...] = (m, k)
    made = graph(matmul, (I8, shape), (I8, (k, n)))
    check(made, full(sizes[0], sizes[1]), full(sizes[1], sizes[2]), targets=TARGETS)


def test_batches_and_the_epilogue() -> None:
    def build(b: GraphBuilder, x: Value, y: Value, scale: Value) -> Value:
        sums = b.emit("cast", matmul(b, x, y), dtype=F32)
        return b.emit("mul", sums, b.emit("expand", scale, shape=sums.shape))

    made = graph(build, (I8, (3, 5, 12)), (I8, (3, 12, 20)), (F32, (20,)))
    assert len(lowered(made).plan.steps) == 1
    check(made, full(3, 5, 12), full(3, 12, 20), torch.rand(20), targets=TARGETS, interpret=True)


def with_weight(shape: tuple[int, int], dims: tuple[int, int]) -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", I8, (7, shape[dims[0]]))
    weight = b.input("w", I8, shape, role=InputRole.PARAM)
    b.graph.results = [matmul(b, x, b.emit("permute", weight, dims=dims))]
    return b.graph


@pytest.mark.parametrize("dims", [(0, 1), (1, 0)])
@pytest.mark.parametrize("k", [64, 37])
def test_weights_are_packed_as_bytes(k: int, dims: tuple[int, int]) -> None:
    shape = (k, 50) if dims == (0, 1) else (50, k)
    made = check(with_weight(shape, dims), full(7, k), full(*shape), targets=TARGETS)
    packed = [buffer for buffer in made.plan.buffers if buffer.kind == "packed"]
    assert [buffer.dtype for buffer in packed] == [I8] and len(made.plan.prepare) == 1


@pytest.mark.parametrize("wanted", [I8, I32])
def test_the_result_may_wrap(wanted: DType) -> None:
    made = graph(lambda b, x, y: b.emit("matmul", x, y, dtype=wanted), (I8, (4, 9)), (I8, (9, 5)))
    assert "= dot(" in "".join(map(print_kernel, lowered(made).kernels.values()))
    check(made, full(4, 9), full(9, 5), targets=TARGETS)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (5, 23, 19), (33, 128, 96), (7, 66, 17)])
def test_signed_bytes_need_no_shift(m: int, k: int, n: int) -> None:
    """The kernels of a processor that multiplies signed bytes, run here with plain vectors."""
    x, y = full(m, k), full(k, n)
    made = lowered(graph(matmul, (I8, (m, k)), (I8, (k, n))), profile("x86-64-v3-vnni-int8"))
    text = "".join(map(print_kernel, made.kernels.values()))
    assert 'unit="vnni_signed"' in text and "xor" not in text
    expected = x.int() @ y.int()
    for (result,) in (program(made, profile("x86-64-v3"))(x, y), interpreted(made, [x, y])):
        assert torch.equal(torch.as_tensor(result), expected)
