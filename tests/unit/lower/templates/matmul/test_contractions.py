"""matmul and attention in graphs: operands through views, epilogues, packed constants."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    DType,
    InputRole,
    to_torch,
)
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.templates.matmul.bind import ContractionBinding
from kernelmill.lower.templates.matmul.spec import Contraction
from tests import guard_pages
from tests.compiled import check, graph, lowered, program, whole
from tests.emulation import emulator

OLDER = (profile("x86-64-v2"), profile("x86-64-v3"))
NUMBERS = [F64, F32, F16, BF16, I64, I32, I16, I8, U8]

# ---- matmul ---------------------------------------------------------------------------------


def matmul(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.emit("matmul", x, y)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_matmul_of_every_dtype(dtype: DType) -> None:
    made = graph(matmul, (dtype, (5, 23)), (dtype, (23, 19)))
    x, y = whole(dtype, 5, 23, low=-3, high=4), whole(dtype, 23, 19, low=-3, high=4)
    check(made, x, y, targets=OLDER, interpret=dtype in (F32, BF16, I8))


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 8, 33), (33, 8, 1), (1, 40, 1), (7, 1, 9), (4, 0, 5), (0, 3, 4), (3, 4, 0), (64, 70, 65)],
)
def test_edges(m: int, k: int, n: int) -> None:
    made = graph(matmul, (F32, (m, k)), (F32, (k, n)))
    check(made, whole(F32, m, k), whole(F32, k, n), interpret=m < 60)


@pytest.mark.parametrize("batch", [(0,), (1,), (3,), (2, 3)])
def test_batches(batch: tuple[int, ...]) -> None:
    made = graph(matmul, (F32, (*batch, 5, 6)), (F32, (*batch, 6, 7)))
    check(made, whole(F32, *batch, 5, 6), whole(F32, *batch, 6, 7), interpret=True)


def test_operands_are_read_through_views() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        tall = b.emit("permute", x, dims=(1, 0))
        batches = b.emit("reshape", x, shape=(3, 7, 12))
        shared = b.emit("expand", b.emit("reshape", y, shape=(1, 12, 10)), shape=(3, 12, 10))
        part = b.emit("slice", x, dim=1, start=1, end=20, step=2)
        around = b.emit("pad", part, low=(1, 2), high=(3, 0), value=2.0)
        backwards = b.emit("flip", b.emit("pad", y, low=(0, 0), high=(4, 0), value=0.0), dims=(0,))
        return [
            b.emit("matmul", tall, y),
            b.emit("matmul", batches, shared),
            b.emit("matmul", b.emit("permute", around, dims=(1, 0)), backwards),
        ]

    made = graph(build, (F32, (12, 21)), (F32, (12, 10)))
    assert len(lowered(made).plan.steps) == 3
    check(made, whole(F32, 12, 21), whole(F32, 12, 10), targets=OLDER, interpret=True)


@pytest.mark.parametrize("side", [0, 1])
def test_what_pads_an_operand_beyond_the_last_k_does_not_count(side: int) -> None:
    """Infinity times the zeros of lanes that are masked off."""

    def build(b: GraphBuilder, *operands: Value) -> Value:
        padded = b.emit("pad", operands[side], low=(1, 0), high=(0, 0), value=float("inf"))
        x, y = (padded if n == side else operand for n, operand in enumerate(operands))
        return b.emit("matmul", x, b.emit("permute", y, dims=(1, 0)))

    made = graph(build, (F32, (2, 21)), (F32, (2, 21)))
    check(made, whole(F32, 2, 21) + 5, whole(F32, 2, 21) + 5)


def test_a_prologue_of_casts_and_an_epilogue_in_another_dtype() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        sums = b.emit("matmul", b.emit("cast", x, dtype=F32), b.emit("cast", y, dtype=F32))
        half = b.emit("cast", b.emit("tanh", sums), dtype=BF16)
        return [half, b.emit("lt", sums, b.emit("full", value=0.0, dtype=F32, shape=sums.shape))]

    made = graph(build, (BF16, (6, 18)), (F16, (18, 35)))
    assert len(lowered(made).plan.steps) == 1
    check(made, whole(BF16, 6, 18), whole(F16, 18, 35), targets=OLDER, interpret=True)


def test_a_half_product_is_rounded_before_its_epilogue() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        product = b.emit("matmul", x, y)
        return b.emit("sub", b.emit("cast", product, dtype=F32), b.emit("full", value=256.0,
                      dtype=F32, shape=product.shape))  # fmt: skip

    made = graph(build, (BF16, (2, 3)), (BF16, (3, 2)))
    x = torch.tensor([[16.0, 1.0, 0.0], [16.0, 1.0, 1.0]], dtype=torch.bfloat16)
    y = torch.tensor([[16.0, 16.0], [0.5, 1.0], [0.5, 0.0]], dtype=torch.bfloat16)
    check(made, x, y, interpret=True)


def test_a_half_product_may_leave_its_sum_unrounded() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        product = b.emit("matmul", x, y, dtype=F32)
        return b.emit("sub", product, b.emit("full", value=256.0, dtype=F32, shape=product.shape))

    made = graph(build, (BF16, (2, 3)), (BF16, (3, 2)))
    x = torch.tensor([[16.0, 1.0, 0.0], [16.0, 1.0, 1.0]], dtype=torch.bfloat16)
    y = torch.tensor([[16.0, 16.0], [0.5, 1.0], [0.25, 0.0]], dtype=torch.bfloat16)
    assert program(lowered(made))(x, y)[0].tolist() == [[0.5, 1.0], [0.75, 1.0]]
    check(made, x, y, interpret=True)


@pytest.mark.parametrize("m", [24, 60])
def test_an_epilogue_behind_a_reshape(m: int) -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        sums = b.emit("matmul", x, y)
        return b.emit("neg", b.emit("reshape", sums, shape=(m // 12, 3, 4, 33)))

    made = graph(build, (I64, (m, 30)), (I64, (30, 33)))
    assert len(lowered(made).plan.steps) == 1
    check(made, whole(I64, m, 30), whole(I64, 30, 33), targets=OLDER)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (9, 40, 17), (3, 0, 2), (0, 4, 4), (65, 8, 33)])
def test_symbolic_sizes(sizes: tuple[int, int, int]) -> None:
    m, k, n = sym("s0"), sym("s1"), sym("s2")

    def build(b: GraphBuilder, x: Value, y: Value, bias: Value) -> Value:
        product = b.emit("matmul", x, y)
        return b.emit("maximum", b.emit("neg", product), b.emit("expand", bias, shape=(m, n)))

    made = graph(build, (F32, (m, k)), (F32, (k, n)), (F32, (n,)))
    inputs = whole(F32, *sizes[:2]), whole(F32, *sizes[1:]), whole(F32, sizes[2])
    check(made, *inputs, targets=OLDER, interpret=True)


# ---- constants ------------------------------------------------------------------------------


def linear(dtype: DType, *, layers: int = 1) -> Graph:
    """Linear layers that share one weight."""
    b = GraphBuilder("g")
    x = b.input("x", dtype, (9, 24))
    weight = b.input("w", dtype, (24, 24), role=InputRole.PARAM)
    for _ in range(layers):
        x = b.emit("tanh", b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0))))
    b.graph.results = [x]
    return b.graph


@pytest.mark.parametrize("dtype", [F64, F32, BF16, F16], ids=str)
def test_a_constant_weight_is_packed_once(dtype: DType) -> None:
    made = linear(dtype, layers=3)
    plan = check(made, whole(dtype, 9, 24), whole(dtype, 24, 24), targets=OLDER).plan
    assert len(plan.prepare) == 1
    assert [buffer.kind for buffer in plan.buffers].count("packed") == 1
    assert len(plan.kernels) == 2, "one packs, one is launched three times"
    assert len(plan.steps) == 3


def test_a_product_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []
    spec = ContractionBinding.spec

    def counted(
        binding: ContractionBinding, emitter: Emitter, packed: PackedWeights
    ) -> Contraction:
        bound.append(binding.seed.op)
        return spec(binding, emitter, packed)

    monkeypatch.setattr(ContractionBinding, "spec", counted)
    lowered(linear(F32))
    assert bound == ["matmul"]


@pytest.mark.skipif(
    emulator() is not None or guard_pages.is_on(), reason="such plans pack at every call"
)
def test_packing_follows_the_weight() -> None:
    run = program(lowered(linear(F32)))
    x, weight = whole(F32, 9, 24), whole(F32, 24, 24)
    for _ in range(2):
        torch.testing.assert_close(run(x, weight)[0], torch.tanh(x @ weight.t()))
        weight.neg_()
    assert run.report()["repacks"] == 2


def test_what_only_parameters_decide_is_computed_once() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (4, 16))
    raw = b.input("w", F32, (16, 16), role=InputRole.PARAM)
    total = b.emit("reshape", b.emit("reduce_sum", b.emit("exp", raw), dims=(1,)), shape=(16, 1))
    scaled = b.emit("div", raw, b.emit("expand", total, shape=(16, 16)))
    b.graph.results = [b.emit("matmul", x, scaled)]
    plan = check(b.graph, torch.randn(4, 16), torch.randn(16, 16), interpret=True).plan
    assert len(plan.steps) == 1
    assert len(plan.prepare) == 2


def test_a_parameter_that_is_updated_is_not_packed() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (4, 16))
    weight = b.input("w", F32, (16, 16), role=InputRole.PARAM)
    b.graph.results = [b.emit("matmul", x, weight)]
    b.graph.updates = [(weight, b.emit("neg", weight))]
    plan = check(b.graph, torch.randn(4, 16), torch.randn(16, 16), interpret=True).plan
    assert plan.prepare == ()


def test_numbers_alone_are_not_packed() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        return b.emit("matmul", x, b.emit("full", value=2.0, dtype=F32, shape=(16, 8)))

    assert check(graph(build, (F32, (4, 16))), torch.randn(4, 16)).plan.prepare == ()


@pytest.mark.parametrize("start", [0, 3])
def test_a_part_of_a_parameter_that_a_symbol_chooses_is_not_packed(start: int) -> None:
    b = GraphBuilder("g")
    s = sym("s0", 0, 5)
    b.dim_input(s)
    x = b.input("x", F32, (4, 4))
    weight = b.input("w", F32, (9, 8), role=InputRole.PARAM)
    part = b.emit("slice", weight, dim=0, start=s, end=s + 4, step=1)
    b.graph.results = [b.emit("matmul", x, part), b.emit("matmul", x, b.emit("exp", part))]
    made = check(b.graph, start, torch.randn(4, 4), torch.randn(9, 8), interpret=True)
    assert made.plan.prepare == ()


# ---- attention ------------------------------------------------------------------------------


def heads(b: GraphBuilder, x: Value, count: int) -> Value:
    """(B, M, H * D) as (B, H, M, D)."""
    batch, rows, width = x.shape
    assert isinstance(width, int)
    split = b.emit("reshape", x, shape=(batch, rows, count, width // count))
    return b.emit("permute", split, dims=(0, 2, 1, 3))


def attention(
    queries: Dim,
    keys: Dim,
    *,
    dtype: DType = F32,
    shared: int = 4,
    mask: tuple[DType, Sequence[Dim]] | None = None,
    causal: bool = False,
) -> Graph:
    """Attention of four heads over projections, back in (B, M, H * D)."""

    def build(b: GraphBuilder, q: Value, k: Value, v: Value, *masks: Value) -> Value:
        split = heads(b, q, 4), heads(b, k, shared), heads(b, v, shared)
        found = b.emit("attention", *split, *masks, scale=0.25, causal=causal)
        return b.emit(
            "reshape", b.emit("permute", found, dims=(0, 2, 1, 3)), shape=(2, queries, 96)
        )

    kinds = [
        (dtype, (2, n, w)) for n, w in ((queries, 64), (keys, 16 * shared), (keys, 24 * shared))
    ]
    return graph(build, *kinds, *([mask] if mask else []))


def projections(queries: int, keys: int, dtype: DType = F32, shared: int = 4) -> list[torch.Tensor]:
    shapes = (2, queries, 64), (2, keys, 16 * shared), (2, keys, 24 * shared)
    return [torch.randn(shape).to(to_torch(dtype)) for shape in shapes]


@pytest.mark.parametrize("dtype", [F32, BF16, F16, F64], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(7, 9), (1, 40), (33, 33)])
def test_attention(dtype: DType, queries: int, keys: int) -> None:
    made = attention(queries, keys, dtype=dtype)
    assert len(lowered(made).plan.steps) == 1
    check(made, *projections(queries, keys, dtype))


@pytest.mark.parametrize("shared", [1, 2])
def test_heads_that_share_keys(shared: int) -> None:
    made = attention(5, 12, shared=shared)
    check(made, *projections(5, 12, shared=shared), targets=OLDER, interpret=True)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", [(2, 4, 9, 9), (1, 1, 9, 9), (2, 1, 1, 9), (9, 9), (9, 1)])
def test_masks(shape: tuple[int, ...], causal: bool) -> None:
    made = attention(9, 9, mask=(BOOL, shape), causal=causal)
    kept = torch.rand(shape) < 0.6
    check(made, *projections(9, 9), kept)
    made = attention(9, 9, mask=(F32, shape), causal=causal)
    added = torch.randn(shape).masked_fill(~kept, -torch.inf)
    check(made, *projections(9, 9), added, interpret=shape == (9, 9))


@pytest.mark.parametrize("sizes", [(1, 1), (5, 17), (16, 3)])
def test_attention_of_symbolic_lengths(sizes: tuple[int, int]) -> None:
    made = attention(sym("s0", 1), sym("s1", 1), mask=(BOOL, (sym("s0", 1), sym("s1", 1))))
    kept = torch.rand(sizes) < 0.7
    check(made, *projections(*sizes), kept, targets=OLDER, interpret=True)
