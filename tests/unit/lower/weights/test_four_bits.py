"""Products of few rows with weights of four bits: numbers that are not ordinary, runs, words."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernelmill.core.dtype import BF16, F16, F32, I8, I32, U8, DType, InputRole, to_torch
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_values
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.weights.four_bits import WORD, bit_of, numbers_of, words_in_panels
from tests.compiled import check, lowered, run_compiled, whole
from tests.unit.lower.weights.test_dequantise import TARGETS, bytes_, nibbles, packed, scales

N, K = 50, 64


def product(m: int, dtype: DType = F32, group: int = 16, k: int = K) -> tuple[Graph, list[Tensor]]:
    """x @ ((q - 8) * s).T with groups of k, and the arguments besides x."""
    b = GraphBuilder("g")
    x = b.input("x", dtype, (m, k))
    q = b.emit("cast", nibbles(b, N, k, 2), dtype=I8)
    q = b.emit("sub", q, b.emit("full", dtype=I8, shape=(N, k), value=8))
    s = b.input("s", dtype, (N, k // group, 1), role=InputRole.PARAM)
    spread = b.emit("reshape", b.emit("expand", s, shape=(N, k // group, group)), shape=(N, k))
    weight = b.emit("mul", b.emit("cast", q, dtype=dtype), spread)
    b.graph.results = [b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)), dtype=dtype)]
    return b.graph, [bytes_(N, k // 2), scales(N, k // group, 1).to(to_torch(dtype))]


def weight_of(arguments: list[Tensor]) -> Tensor:
    bytes, s = arguments
    numbers = torch.stack((bytes & 15, bytes >> 4), -1).reshape(N, -1).double() - 8
    return numbers * s.double().repeat_interleave(numbers.shape[1] // s.shape[1], 1).reshape(N, -1)


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize(("group", "k"), [(8, 64), (32, 96), (64, 64), (160, 160), (256, 512)])
def test_groups_of_any_size(group: int, k: int, dtype: DType) -> None:
    graph, arguments = product(2, dtype, group, k)
    made = check(graph, whole(dtype, 2, k), *arguments, targets=TARGETS, interpret=k < 100)
    assert len(made.plan.steps) == 1 and "i32" in packed(made)


def test_groups_that_are_no_whole_words_stay_bytes() -> None:
    graph, arguments = product(2, F32, 12, 48)
    made = check(graph, whole(F32, 2, 48), *arguments, targets=TARGETS)
    assert "u8" in packed(made) and "i32" not in packed(made)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 9])
def test_rows(m: int) -> None:
    graph, arguments = product(m, BF16)
    check(graph, whole(BF16, m, K), *arguments, targets=TARGETS)


def test_few_and_many_rows_read_the_same_words() -> None:
    few, many = lowered(product(1, BF16)[0]), lowered(product(40, BF16)[0])
    shapes = [
        [(b.dtype, b.shape) for b in each.plan.buffers if b.kind == "packed"]
        for each in (few, many)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 3e38])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_numbers_that_are_not_finite_come_out_as_they_do_in_float64(
    dtype: DType, number: float
) -> None:
    graph, arguments = product(1, dtype)
    x = whole(dtype, 1, K)
    x[0, 5] = number
    exact = (x.double() @ weight_of(arguments).T).to(to_torch(dtype))
    for target in TARGETS:
        (found,) = run_compiled(graph, [x, *arguments], target)
        assert torch.equal(found.isnan(), exact.isnan())
        kept = ~exact.isnan()
        assert torch.equal(found[kept].isinf(), exact[kept].isinf())
        torch.testing.assert_close(found[kept], exact[kept])


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_small_numbers_count(dtype: DType) -> None:
    graph, arguments = product(1, dtype)
    arguments[1] = torch.ones_like(arguments[1])
    x = whole(dtype, 1, K) * 2.0**-130
    exact = (x.double() @ weight_of(arguments).T).to(to_torch(dtype))
    assert exact.count_nonzero()
    for target in TARGETS:
        (found,) = run_compiled(graph, [x, *arguments], target)
        assert torch.equal(found, exact)


@pytest.mark.parametrize("smaller", [-6, -16, -20, -40])
@pytest.mark.parametrize("m", [1, 2])
def test_numbers_count_beside_much_larger_ones(m: int, smaller: int) -> None:
    graph, (bytes, s) = product(m, BF16)
    x = torch.randint(128, 256, (m, K)) * 2.0 ** (smaller - 7)
    large = torch.arange(K) % 16 == 3
    x[:, large] = 1.5
    numbers = torch.where(large, 0, torch.randint(0, 8, (N, K))) + 8
    bytes = (numbers[:, 0::2] + (numbers[:, 1::2] << 4)).to(torch.uint8)
    arguments = [bytes, torch.ones_like(s)]
    exact = x.double() @ weight_of(arguments).T
    for target in TARGETS:
        (found,) = run_compiled(graph, [x.bfloat16(), *arguments], target)
        # Sums of f32 have rounded the large ones times 8, which make nothing of the result.
        limit = exact.abs() * 2.0**-8 + 2.0**-15
        assert (found.double() - exact).abs().le(limit).all(), str(target.isa)


def test_errors_of_bf16_are_those_of_its_rounding() -> None:
    torch.manual_seed(6)
    graph, arguments = product(1, BF16, 32, 512)
    x = (torch.randn(1, 512) * torch.randn(1, 512)).bfloat16()
    exact = x.double() @ weight_of(arguments).T
    for target in TARGETS:
        (found,) = run_compiled(graph, [x, *arguments], target)
        bound = exact.abs() * 2.0**-8 + 2.0**-20 * (x.double().abs() @ weight_of(arguments).T.abs())
        assert (found.double() - exact).abs().le(bound).all(), str(target.isa)


@pytest.mark.parametrize("place", range(WORD))
def test_each_number_of_a_word_counts_as_itself(place: int) -> None:
    graph, arguments = product(1, F32)
    x = torch.zeros(1, K)
    x[0, place::WORD] = torch.tensor([2.0**n for n in range(K // WORD)])
    exact = (x.double() @ weight_of(arguments).T).float()
    for target in TARGETS:
        (found,) = run_compiled(graph, [x, *arguments], target)
        torch.testing.assert_close(found, exact)


def test_errors_are_those_of_sums_in_f32() -> None:
    torch.manual_seed(5)
    graph, arguments = product(1, F32, 32, 512)
    x = torch.randn(1, 512) + 3  # a mean that 1 + q / 16 would multiply
    weight = weight_of(arguments)
    (found,) = run_compiled(graph, [x, *arguments])
    bound = 8 * 2.0**-24 * (x.double().abs() @ weight.T.abs())
    assert (found.double() - x.double() @ weight.T).abs().le(bound).all()


def test_words_hold_their_numbers() -> None:
    b = GraphBuilder("g")
    rows = b.input("q", I32, (1, 5, 16))
    words = words_in_panels(rows, -8, 4, "")
    numbers = torch.randint(-8, 8, (1, 5, 16), dtype=torch.int32)
    filled = torch.zeros(8, 16, dtype=torch.int64)
    filled[:5] = numbers[0] + 8
    bits = torch.tensor([bit_of(number) for number in range(WORD)])
    expected = (filled.reshape(2, 4, 2, 8) << bits).sum(-1).permute(0, 2, 1)
    assert torch.equal(evaluated(b.graph, words, numbers).long() & 0xFFFFFFFF, expected)
    assert torch.equal(evaluated(b.graph, numbers_of(words, -8, 5), numbers), numbers[0])


def evaluated(graph: Graph, value: Value, data: Tensor) -> Tensor:
    """A value that is computed from the graph's input."""
    graph.nodes = []

    def visit(one: Value) -> None:
        if one.node is not None and one.node not in graph.nodes:
            for operand in one.node.operands:
                visit(operand)
            graph.nodes.append(one.node)

    visit(value)
    return run_values(graph, [data])[0][value]


def test_bytes_of_bits_are_not_four_bits() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", F32, (1, 32)), b.input("w", U8, (N, 32), role=InputRole.BUFFER)
    weight = b.emit("permute", b.emit("cast", w, dtype=F32), dims=(1, 0))
    b.graph.results = [b.emit("matmul", x, weight)]
    made = check(b.graph, whole(F32, 1, 32), bytes_(N, 32), targets=TARGETS)
    assert packed(made) == ["u8"]
