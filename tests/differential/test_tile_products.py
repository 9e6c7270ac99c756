"""What runs on tiles, in bf16 and bytes, held against float64 and exact integers: edges,
magnitudes, denormals and what is no ordinary number. Products of f32 have test_pieces.py."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F32, I8, I32, DType, InputRole
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.runtime.program import Program
from tests.compiled import lowered, program
from tests.tolerances import mismatch
from tests.unit.lower.for_tiles import ALWAYS, texts
from tests.unit.lower.templates.attention.test_tiled import attention, exact, given
from tests.unit.lower.templates.convolution.test_tiles import convolution
from tests.unit.lower.weights.test_dequantise import Kind, int4, linear, per_channel

LEAST = 2.0**-126
LARGEST = torch.finfo(torch.bfloat16).max
EDGES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 70)
DEPTHS = (1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 130)
POWERS = (-126, -110, -64, -20, 0, 20, 64, 110, 126)


def tiled(graph: Graph) -> Program:
    """The graph's code, which has products of tiles."""
    made = lowered(graph, ALWAYS)
    assert "tile_dot" in texts(made)
    return program(made, host())


def result(run: Program, *given: Tensor) -> Tensor:
    (found,) = run(*given)
    assert isinstance(found, Tensor)
    return found


@cache
def any_product(dtype: DType, batched: bool) -> Program:
    """For all sizes."""
    b = GraphBuilder("product")
    batch = (sym("s3", 1),) if batched else ()
    x = b.input("x", dtype, (*batch, sym("s0", 1), sym("s1", 1)))
    y = b.input("y", dtype, (*batch, sym("s1", 1), sym("s2", 1)))
    b.graph.results = [b.emit("matmul", x, y, dtype=F32 if dtype == BF16 else I32)]
    return tiled(b.graph)


@cache
def product_with_a_weight(dtype: DType, k: int, n: int) -> Program:
    """For any number of rows."""
    b = GraphBuilder("product")
    x = b.input("x", dtype, (sym("s0", 1), k))
    w = b.input("w", dtype, (n, k), role=InputRole.PARAM)
    right = b.emit("permute", w, dims=(1, 0))
    b.graph.results = [b.emit("matmul", x, right, dtype=F32 if dtype == BF16 else I32)]
    return tiled(b.graph)


def halves(*shape: int, power: int = 0) -> Tensor:
    """Of either sign, and magnitudes from 2^power to twice that: none is denormal."""
    signs = torch.randint(0, 2, shape) * 2 - 1
    return (signs * (torch.rand(shape) * 0.99 + 1) * 2.0**power).bfloat16()


def check_halves(found: Tensor, a: Tensor, b: Tensor) -> None:
    """Against float64: so many roundings, and what is below the least normal number at each."""
    a, b = a.double(), b.double()
    k = a.shape[-1]
    allowed = (a.abs() @ b.abs()) * k * 2.0**-24 + 2 * k * LEAST
    error = (found.double() - a @ b).abs()
    assert found.shape == error.shape and (error <= allowed).all(), (a.shape, b.shape)


def check_bytes(found: Tensor, a: Tensor, b: Tensor) -> None:
    assert torch.equal(found.long(), (a.double() @ b.double()).long()), (a.shape, b.shape)


def given_bytes(*shape: int) -> Tensor:
    return torch.randint(-128, 128, shape).to(torch.int8)


@pytest.mark.parametrize("batched", [False, True])
def test_edges(batched: bool) -> None:
    batch = (3,) if batched else ()
    for m, n, k in itertools.product(EDGES, EDGES[batched::3], DEPTHS):
        a, b = halves(*batch, m, k), halves(*batch, k, n)
        check_halves(result(any_product(BF16, batched), a, b), a, b)
        a, b = given_bytes(*batch, m, k), given_bytes(*batch, k, n)
        check_bytes(result(any_product(I8, batched), a, b), a, b)


@pytest.mark.parametrize(
    ("k", "n"), [(1, 2), (2, 70), (31, 33), (32, 16), (65, 17), (127, 48), (130, 69)]
)
def test_edges_of_constants(k: int, n: int) -> None:
    weight, of_bytes = halves(n, k), given_bytes(n, k)
    for m in EDGES:
        a = halves(m, k)
        check_halves(result(product_with_a_weight(BF16, k, n), a, weight), a, weight.T)
        a = given_bytes(m, k)
        check_bytes(result(product_with_a_weight(I8, k, n), a, of_bytes), a, of_bytes.T)


def both(a: Tensor, b: Tensor) -> list[Tensor]:
    """The product by a program with a constant and by one with none."""
    constant = product_with_a_weight(BF16, a.shape[1], b.shape[1])
    return [result(any_product(BF16, False), a, b), result(constant, a, b.T.contiguous())]


def test_magnitudes() -> None:
    for left, right in itertools.product(POWERS, POWERS):
        if left + right > 110:
            continue
        a, b = halves(35, 65, power=left), halves(65, 33, power=right)
        for found in both(a, b):
            check_halves(found, a, b)
    spread = (10.0 ** torch.empty(35, 65).uniform_(-37, 35)).bfloat16()
    b = halves(65, 33)
    for found in both(spread, b):
        check_halves(found, spread, b)


def test_denormals_count_as_zeros() -> None:
    tiny = torch.tensor([2.0**-133, -(2.0**-127), 2.0**-126 - 2.0**-133]).bfloat16()
    a, b = halves(35, 65), halves(65, 33, power=60)
    few = torch.rand(35, 65) < 0.2
    a = torch.where(few, tiny[torch.randint(0, 3, (35, 65))], a)
    for found in both(a, b):
        check_halves(found, a.masked_fill(few, 0), b)
    for found in both(torch.where(few, a, 0), b):
        assert (found == 0).all()


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan, LARGEST, -LARGEST])
def test_what_is_no_ordinary_number_comes_out_as_eager(special: float) -> None:
    for place in ("a", "b", "both"):
        a, b = halves(35, 65).abs(), halves(65, 33).abs()
        a[5, 7] = 0.0
        if place != "b":
            a[3, 4] = a[34, 64] = special
        if place != "a":
            b[7, 2] = b[64, 32] = special
        eager = a.float() @ b.float()
        for found in both(a, b):
            torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_bytes_with_scales() -> None:
    """What quant_matmul is: sums of bytes, exact, times a scale for each column."""
    b = GraphBuilder("quantised")
    x = b.input("x", I8, (sym("s0", 1), 130))
    w = b.input("w", I8, (130, 45), role=InputRole.PARAM)
    scale = b.input("scale", F32, (45,), role=InputRole.PARAM)
    sums = b.emit("cast", b.emit("matmul", x, w, dtype=I32), dtype=F32)
    b.graph.results = [b.emit("mul", sums, b.emit("expand", scale, shape=sums.shape))]
    run, weight = tiled(b.graph), given_bytes(130, 45)
    for power in (-120, -30, 0, 30, 100):
        scales = (torch.rand(45) + 1) * 2.0**power
        for m in EDGES:
            a = given_bytes(m, 130)
            expected = (a.double() @ weight.double()) * scales.double()
            error = (result(run, a, weight, scales).double() - expected).abs()
            assert (error <= expected.abs() * 2.0**-23 + LEAST).all()


@pytest.mark.parametrize("kind", [per_channel, int4])
def test_weights_of_smaller_numbers(kind: Kind) -> None:
    for m in (9, 17, 33, 70):
        graph, (x, *others) = linear(kind, m, 50, 64, BF16)
        run = tiled(graph)
        for left, right in ((-100, 0), (-30, -80), (0, 0), (100, -80), (100, 10)):
            a = halves(*x.shape, power=left)
            scaled = [*others[:-1], others[-1] * 2.0**right]
            (answer,) = run_graph(graph, [(a.float() * 2.0**-left).bfloat16(), *others])
            found = result(run, a, *scaled).double() * 2.0 ** -(left + right)
            assert isinstance(answer, Tensor)
            assert mismatch(found.bfloat16(), answer) is None, (m, left, right)


SHAPE = (1, 2, 1, 33, 70, 48, 40)


@cache
def attended(causal: bool) -> Program:
    return tiled(attention(SHAPE, causal))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_any_magnitude(causal: bool) -> None:
    q, k, v = given(SHAPE)
    graph = attention(SHAPE, causal)
    for scores, power in itertools.product((-126, -40, -8, 0, 4), (-110, -60, 0, 60, 120)):
        queries = (q.float() * 2.0 ** (scores // 2)).bfloat16()
        keys = (k.float() * 2.0 ** (scores - scores // 2)).bfloat16()
        found = result(attended(causal), queries, keys, (v.float() * 2.0**power).bfloat16())
        (eager,) = run_graph(graph, [queries, keys, v])
        assert isinstance(eager, Tensor)
        wrong = mismatch(
            (found.double() * 2.0**-power).bfloat16(), eager,
            exact([queries, keys, v], causal, True),
        )  # fmt: skip
        assert wrong is None, (scores, power, wrong)


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan])
def test_attention_to_what_is_no_number(special: float) -> None:
    q, k, v = given(SHAPE)
    for operand in range(3):
        inputs = [each.clone() for each in (q, k, v)]
        inputs[operand][0, 5, 0, 7] = special
        found = result(attended(False), *inputs)
        answer = exact(inputs, False, True)
        (eager,) = run_graph(attention(SHAPE, False), inputs)
        assert isinstance(eager, Tensor)
        wrong = mismatch(found, eager, answer)
        assert wrong is None, (operand, wrong)


@cache
def convolved() -> Program:
    return tiled(convolution((2, 32, 9, 11), 40, (3, 3), padding=(1, 1)))


def convolve(x: Tensor, w: Tensor) -> Tensor:
    """In the precision of the operands; channels last. In float64 what is outside of the image is
    zeros that are multiplied, as here: oneDNN leaves it out, which matters beside infinities."""
    y = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w, padding=1)
    return y.permute(0, 2, 3, 1)


def test_convolutions_of_any_magnitude() -> None:
    for left, right in itertools.product(POWERS, POWERS):
        if abs(left + right) > 110:
            continue
        x, w = halves(2, 9, 11, 32, power=left), halves(40, 32, 3, 3, power=right)
        size = convolve(x.double().abs(), w.double().abs())
        expected = convolve(x.double(), w.double())
        error = (result(convolved(), x, w).double() - expected).abs()
        assert (error <= expected.abs() * 2.0**-8 + size * 288 * 2.0**-24 + 600 * LEAST).all()


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan])
def test_convolutions_of_what_is_no_number(special: float) -> None:
    for place in (0, 1):
        given = [halves(2, 9, 11, 32), halves(40, 32, 3, 3)]
        given[place][1, 2, 2, 1] = special
        found = result(convolved(), *given).double()
        expected = convolve(given[0].double(), given[1].double())
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2, equal_nan=True)
