"""Inner loops of AArch64's products, read as text: a multiply-add takes a lane of A's rows, a unit
for blocks two rows of A and two columns of B. No loop has more than 1.15 instructions for each."""

from __future__ import annotations

import re

import pytest

from kernelmill.core.dtype import BF16, F16, F32, F64, I8, I32, U8, DType, InputRole
from kernelmill.core.target.machine import PROFILES
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.kernel.ir import Instr, statements_of
from tests.compiled import lowered, program, whole
from tests.unit.lower.for_tiles import equal, texts
from tests.unit.lower.templates.matmul.inner_loops import NEON, kernel_of, loops
from tests.unit.lower.templates.matmul.test_tiled import product

V8_6 = PROFILES["aarch64-v8.6"]
DOTPROD = PROFILES["aarch64-v8.2-dotprod"]


MOST = 1.15
"""Instructions of a loop for each multiply-add."""


def check(loop: list[str], word: str) -> None:
    """Few instructions beside multiply-adds, and no sum on the stack."""
    assert len(loop) <= MOST * sum(line.startswith(word) for line in loop)
    assert not any("[sp" in line for line in loop), "sums stay in registers"


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("constant", ["a", "b", ""])
def test_the_inner_loop_is_little_more_than_multiply_adds(constant: str, dtype: DType) -> None:
    kernel = kernel_of(product(dtype, dtype, constant, constant)(128, 768, 768))
    loop = loops(kernel, "fmla")[0]
    check(loop, "fmla")
    lane = r"\.s\[\d\]$" if dtype == F32 else r"\.d\[\d\]$"
    adds = [line for line in loop if line.startswith("fmla")]
    assert all(re.search(lane, line) for line in adds), "by a lane, not by a copy of it"


@pytest.mark.parametrize("m", [9, 16, 24])
def test_few_rows_fetch_each_line_of_weights_once(m: int) -> None:
    """A line has four vectors, and two tiles share those of the next panel."""
    loop = loops(kernel_of(product(F32, F32, "b", "b")(m, 768, 768)), "fmla")[0]
    check(loop, "fmla")
    assert sum(line.startswith("prf") for line in loop) <= 4


@pytest.mark.parametrize("n", [128, 100])
def test_rows_that_lie_apart_take_no_address_each(n: int) -> None:
    b = GraphBuilder("g")
    operands = [b.input(*each) for each in (("x", F32, (8, 128, 64)), ("y", F32, (8, 64, n)))]
    b.graph.results = [b.emit("matmul", *operands, dtype=F32)]
    loop = loops(kernel_of(b.graph), "fmla")[0]
    check(loop, "fmla")
    apart = [line for line in loop if re.match(r"ld1\t\{.*\[x\d+\], x\d+$", line)]
    assert len(apart) == 8, "a load leaves the address of the next k's row"


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("weight", ["", "b"])
@pytest.mark.parametrize("m", [8, 12, 13, 30, 65])
def test_panels_of_rows_that_are_neighbours_in_memory(m: int, weight: str, dtype: DType) -> None:
    """What is lowered for AArch64, run here by code of this machine: A ends where its last row
    does."""
    made = product(dtype, dtype, "a", weight)(m, 37, 70)
    found = lowered(made, NEON)
    assert "store scratch" in texts(found) and "extract(" in texts(found)
    a, b = whole(dtype, m, 37).T.contiguous(), whole(dtype, 37, 70)
    equal(program(found)(a, b), run_graph(made, [a, b]))


def test_few_columns_read_rows_where_they_lie() -> None:
    kernel = kernel_of(product(F32, F32, "b", "b")(128, 768, 16))
    assert "extract" not in {s.op for s in statements_of(kernel.body) if isinstance(s, Instr)}


def test_pairs_of_bf16_are_one_instruction() -> None:
    """Of so few columns that blocks do not pay."""
    kernel = kernel_of(product(BF16, F32, "b", "b")(128, 768, 4), V8_6)
    loop = loops(kernel, "bfdot", V8_6)[0]
    assert not any(line.startswith(("fmla", "shl")) for line in loop)


def test_products_of_bytes_are_by_lane_too() -> None:
    kernel = kernel_of(product(I8, I32, "b", "b")(128, 768, 768), DOTPROD)
    check(loops(kernel, "sdot", DOTPROD)[0], "sdot")


@pytest.mark.parametrize(
    ("dtype", "sums", "unit"), [(I8, I32, "smmla"), (U8, U8, "ummla"), (BF16, F32, "bfmmla")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("constant", ["b", ""])
def test_blocks_are_read_once_for_each_tile(
    constant: str, dtype: DType, sums: DType, unit: str
) -> None:
    """Four blocks of rows by six of columns take ten vectors, four and two times three of them at
    a time: 27 instructions for 24."""
    kernel = kernel_of(product(dtype, sums, constant, constant)(128, 768, 768), V8_6)
    loop = loops(kernel, unit, V8_6)[0]
    check(loop, unit)
    assert sum(line.startswith(unit) for line in loop) == 4 * 6 * 16
    assert sum(line.startswith("ld") for line in loop) == 3 * 16


def convolution(
    window: int, last: bool = False, channels: int = 64, stride: int = 1, dtype: DType = F32
) -> Graph:
    b = GraphBuilder("g")
    lying = (1, 28, 28, channels) if last else (1, channels, 28, 28)
    image = b.input("x", dtype, lying)
    image = b.emit("permute", image, dims=(0, 3, 1, 2)) if last else image
    weight = b.input("w", dtype, (64, channels, window, window), role=InputRole.PARAM)
    around, steps = (window // 2,) * 2, (stride, stride)
    found = b.emit("conv", image, weight, stride=steps, padding=around, dilation=(1, 1), groups=1)
    b.graph.results = [b.emit("permute", found, dims=(0, 2, 3, 1)) if last else found]
    return b.graph


def attention(keys: int, causal: bool = False, dtype: DType = F32) -> Graph:
    b = GraphBuilder("g")
    operands = [b.input(name, dtype, (1, 8, keys, 64)) for name in "qkv"]
    b.graph.results = [b.emit("attention", *operands, scale=0.125, causal=causal)]
    return b.graph


@pytest.mark.parametrize(
    ("made", "type", "counted"),
    [
        (convolution(3), "Conv", 1), (convolution(7), "Conv", 1), (convolution(1), "Conv", 1),
        (convolution(3, last=True), "Conv", 1), (convolution(1, last=True), "Conv", 1),
        (convolution(7, last=True, channels=24, stride=2), "Conv", 1),
        (convolution(3, last=True, channels=256), "Conv", 1),
        (attention(128), "Attention", 2), (attention(512, causal=True), "Attention", 2),
    ],
    ids=["windows", "wide", "pixels", "last", "last_pixels", "last_wide", "last_deep",
         "attention", "causal"],
)  # fmt: skip
def test_other_templates_take_lanes_too(made: Graph, type: str, counted: int) -> None:
    """Of an attention both, scores and weighted values."""
    found = loops(kernel_of(made, type=type), "fmla")[:counted]
    assert len(found) == counted
    for loop in found:
        check(loop, "fmla")
        adds = [line for line in loop if line.startswith("fmla")]
        assert len(adds) >= 128 and all(re.search(r"\.s\[\d\]$", line) for line in adds)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("window", "channels", "stride"), [(3, 64, 1), (7, 24, 2), (1, 256, 1)])
def test_convolutions_of_half_types_widen_no_number_in_the_loop(
    window: int, channels: int, stride: int, last: bool, dtype: DType
) -> None:
    made = convolution(window, last, channels, stride, dtype)
    loop = loops(kernel_of(made, type="Conv"), "fmla")[0]
    check(loop, "fmla")
    assert sum(line.startswith("fmla") for line in loop) >= 192


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_products_of_half_types_without_a_unit_widen_no_number_in_the_loop(dtype: DType) -> None:
    b = GraphBuilder("g")
    operands = [b.input(*each) for each in (("x", dtype, (8, 128, 64)), ("y", dtype, (8, 64, 128)))]
    b.graph.results = [b.emit("matmul", *operands, dtype=F32)]
    for made in (product(dtype, dtype, "b", "b")(128, 768, 768), b.graph):
        check(loops(kernel_of(made), "fmla")[0], "fmla")


def test_attention_of_bf16() -> None:
    for loop in loops(kernel_of(attention(128, dtype=BF16), type="Attention"), "fmla")[:2]:
        check(loop, "fmla")
