"""Attention lowered for the tile unit, which code for this machine emulates, against eager."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from kernelmill.codegen.compile import assembly
from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, BOOL, DType
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from tests.compiled import interpreted, lowered, program
from tests.tolerances import mismatch
from tests.unit.lower.for_tiles import ALWAYS, AMX, texts

INF, NAN = float("inf"), float("nan")

SHAPES = [
    # B, H, G, M, N, D, E
    (1, 2, 2, 128, 128, 64, 64),
    (2, 3, 3, 33, 70, 64, 64),
    (1, 2, 2, 20, 300, 32, 48),
    (1, 2, 1, 300, 20, 16, 16),
    (1, 1, 1, 97, 97, 80, 80),
    (1, 2, 1, 12, 600, 128, 96),
    (2, 1, 1, 9, 1, 8, 8),
    (1, 1, 1, 50, 17, 13, 7),
    (1, 1, 1, 10, 0, 8, 8),
]

Shape = tuple[int, int, int, int, int, int, int]


def attention(
    shape: tuple[Dim, ...], causal: bool = False, mask: DType | None = None, inside: bool = True
) -> Graph:
    """Heads stand `inside` of rows, as a projection leaves them, or outside."""
    batch, heads, shared, rows, keys, depth, value_depth = shape
    b = GraphBuilder("attention")

    def operand(name: str, *sizes: Dim):
        if not inside:
            return b.input(name, BF16, sizes)
        first, second, third, last = sizes
        lying = b.input(name, BF16, (first, third, second, last))
        return b.emit("permute", lying, dims=(0, 2, 1, 3))

    operands = [
        operand("q", batch, heads, rows, depth),
        operand("k", batch, shared, keys, depth),
        operand("v", batch, shared, keys, value_depth),
    ]
    if mask is not None:
        operands.append(b.input("mask", mask, (batch, heads, rows, keys)))
    b.graph.results = [b.emit("attention", *operands, scale=0.3, causal=causal)]
    return b.graph


def given(shape: Shape, mask: DType | None = None, inside: bool = True) -> list[Tensor]:
    batch, heads, shared, rows, keys, depth, value_depth = shape
    generator = torch.Generator().manual_seed(0)
    sizes = [(heads, rows, depth), (shared, keys, depth), (shared, keys, value_depth)]
    found: list[Tensor] = []
    for number, length, last in sizes:
        lying = (length, number, last) if inside else (number, length, last)
        found.append(torch.randn(batch, *lying, generator=generator).bfloat16())
    if mask == BOOL:
        found.append(torch.rand(batch, heads, rows, keys, generator=generator) < 0.6)
    elif mask is not None:
        found.append(torch.randn(batch, heads, rows, keys, generator=generator).bfloat16())
    return found


def exact(inputs: list[Tensor], causal: bool, inside: bool) -> Tensor:
    """The answer in f64, rounded once."""
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    q, k, v = (x.transpose(1, 2) if inside else x for x in wide[:3])
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * 0.3
    if len(wide) > 3:
        scores = scores.masked_fill(~wide[3], -INF) if wide[3].dtype == torch.bool else (
            scores + wide[3]
        )  # fmt: skip
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -INF)
    return torch.softmax(scores, -1).nan_to_num() @ v


def check(
    made: Graph, inputs: list[Tensor], causal: bool = False, inside: bool = True,
    interpret: bool = False,
) -> None:  # fmt: skip
    """Tiles are used, and the results no worse than eager's."""
    found = lowered(made, ALWAYS)
    assert "tile_dot" in texts(found)
    (expected,), answer = run_graph(made, inputs), exact(inputs, causal, inside)
    assert isinstance(expected, Tensor)
    results = [program(found, host())(*inputs)]
    if interpret:
        results.append(interpreted(found, inputs))
    for (got,) in results:
        assert isinstance(got, Tensor)
        assert mismatch(got, expected, answer) is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: Shape, causal: bool) -> None:
    check(attention(shape, causal), given(shape), causal)


@pytest.mark.parametrize("mask", [BF16, BOOL], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 3, 33, 70, 64, 64), (1, 1, 1, 50, 17, 13, 7)], ids=str)
def test_masks(shape: Shape, mask: DType) -> None:
    check(attention(shape, mask=mask), given(shape, mask))


@pytest.mark.parametrize("causal", [False, True])
def test_the_interpreter_agrees(causal: bool) -> None:
    shape = (1, 2, 1, 20, 37, 24, 12)
    check(attention(shape, causal, BF16), given(shape, BF16), causal, interpret=True)


def test_heads_outside_of_rows_and_turned_keys() -> None:
    shape = (1, 2, 2, 33, 40, 20, 24)
    check(attention(shape, inside=False), given(shape, inside=False), inside=False)
    b = GraphBuilder("turned")
    q, k, v = (b.input(n, BF16, s) for n, s in (
        ("q", (1, 2, 33, 20)), ("k", (1, 2, 20, 40)), ("v", (1, 2, 24, 40)),
    ))  # fmt: skip
    k, v = (b.emit("permute", x, dims=(0, 1, 3, 2)) for x in (k, v))
    b.graph.results = [b.emit("attention", q, k, v, scale=0.3, causal=False)]
    q, k, v = given(shape, inside=False)
    turned = [q, k.mT.contiguous(), v.mT.contiguous()]
    (got,) = program(lowered(b.graph, ALWAYS), host())(*turned)
    assert isinstance(got, Tensor)
    answer = exact([q, k, v], False, False)
    assert mismatch(got, answer.bfloat16(), answer) is None


@pytest.mark.parametrize("rows", [1, 2, 5, 9, 33, 130])
@pytest.mark.parametrize("causal", [False, True])
def test_symbolic_rows_and_keys(rows: int, causal: bool) -> None:
    made = attention((1, 2, 2, sym("m", 1), sym("n", 1), 32, 32), causal)
    check(made, given((1, 2, 2, rows, 70, 32, 32)), causal)


def test_what_is_masked_out_does_not_count() -> None:
    """Rows of which nothing is left are zeros, and NaN stays in its row."""
    shape = (1, 1, 1, 40, 70, 16, 16)
    inputs = given(shape, BOOL)
    inputs[3][..., 3, :] = False
    inputs[0][:, 7] = NAN
    made = attention(shape, mask=BOOL)
    (expected,) = run_graph(made, inputs)
    (got,) = program(lowered(made, ALWAYS), host())(*inputs)
    assert isinstance(got, Tensor) and isinstance(expected, Tensor)
    assert mismatch(got, expected) is None
    assert bool((got[0, 0, 3] == 0).all()) and bool(got[0, 0, 7].isnan().all())


def test_few_queries_and_other_types_have_no_tiles() -> None:
    for rows, tiled in ((1, False), (128, True)):
        made = attention((1, 12, 12, rows, 128, 64, 64))
        assert ("tile_dot" in texts(lowered(made, AMX))) == tiled


def test_inner_loops_are_loads_and_products() -> None:
    (kernel,) = lowered(attention((1, 12, 12, 128, 128, 64, 64)), AMX).kernels.values()
    text = assembly(kernel, AMX.isa)
    assert "tdpbf16ps" in text
    assert "(%rsp" not in "".join(re.findall(r"\ttile(?:loadd|stored).*", text))
