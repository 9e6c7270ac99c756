"""Inner loops of AArch64's products, read as text: a multiply-add takes a lane of A's rows, a unit
for blocks two rows of A and two columns of B."""

from __future__ import annotations

import re

import pytest

from kernelmill.codegen.compile import assembly
from kernelmill.core.dtype import BF16, F32, F64, I8, I32, U8, DType
from kernelmill.core.machine import PROFILES, Machine
from kernelmill.core.roles import InputRole
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.kernel.ir import Instr, Kernel
from kernelmill.kernel.walk import statements_of
from tests.compiled import lowered
from tests.unit.lower.templates.matmul.test_tiled import product

NEON, V8_6 = PROFILES["aarch64-neon"], PROFILES["aarch64-v8.6"]
DOTPROD = PROFILES["aarch64-v8.2-dotprod"]


def kernel_of(made: Graph, machine: Machine = NEON, type: str = "MatMul") -> Kernel:
    found = lowered(made, machine).kernels.values()
    (kernel,) = (kernel for kernel in found if kernel.type.startswith(type))
    return kernel


def loops(kernel: Kernel, word: str, machine: Machine = NEON) -> list[list[str]]:
    """The instructions of each innermost loop that has `word`, the one with most of them first."""
    text = assembly(kernel, machine.isa)
    found: list[list[str]] = []
    for block in re.split(r"\n(?=\.LBB)", text):
        label, lines = block.partition(":")[0], re.findall(r"^\t([a-z].*)$", block, re.MULTILINE)
        back = next(
            (n for n, line in enumerate(lines) if re.match(rf"b\S*\t{label}\b", line)), None
        )
        if back is not None and any(line.startswith(word) for line in lines[:back]):
            found.append(lines[: back + 1])
    return sorted(found, key=lambda loop: -sum(line.startswith(word) for line in loop))


@pytest.mark.parametrize(("dtype", "most"), [(F32, 1.15), (F64, 1.18)], ids=str)
@pytest.mark.parametrize("constant", ["a", "b", ""])
def test_the_inner_loop_is_little_more_than_multiply_adds(
    constant: str, dtype: DType, most: float
) -> None:
    kernel = kernel_of(product(dtype, dtype, constant, constant)(128, 768, 768))
    loop = loops(kernel, "fmla")[0]
    adds = [line for line in loop if line.startswith("fmla")]
    lane = r"\.s\[\d\]$" if dtype == F32 else r"\.d\[\d\]$"
    assert all(re.search(lane, line) for line in adds), "by a lane, not by a copy of it"
    assert len(loop) <= most * len(adds)
    assert not any("[sp" in line for line in loop), "sums stay in registers"


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
    loop = loops(kernel, "sdot", DOTPROD)[0]
    assert len(loop) <= 1.15 * sum(line.startswith("sdot") for line in loop)
    assert not any("[sp" in line for line in loop)


@pytest.mark.parametrize(
    ("dtype", "sums", "unit"), [(I8, I32, "smmla"), (U8, U8, "ummla"), (BF16, F32, "bfmmla")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("constant", ["b", ""])
def test_blocks_are_read_once_for_each_tile(
    constant: str, dtype: DType, sums: DType, unit: str
) -> None:
    """Four blocks of rows by six of columns take ten vectors, two of them at a time: 29 for 24."""
    kernel = kernel_of(product(dtype, sums, constant, constant)(128, 768, 768), V8_6)
    loop = loops(kernel, unit, V8_6)[0]
    blocks = sum(line.startswith(unit) for line in loop)
    assert blocks == 4 * 6 * 8 and len(loop) <= 1.25 * blocks
    assert sum(line.startswith("ld") for line in loop) == 5 * 8
    assert not any("[sp" in line for line in loop), "sums stay in registers"


def convolution(window: int) -> Graph:
    b = GraphBuilder("g")
    image = b.input("x", F32, (1, 64, 28, 28))
    weight = b.input("w", F32, (64, 64, window, window), role=InputRole.PARAM)
    around = (window // 2,) * 2
    found = b.emit("conv", image, weight, stride=(1, 1), padding=around, dilation=(1, 1), groups=1)
    b.graph.results = [found]
    return b.graph


def attention() -> Graph:
    b = GraphBuilder("g")
    operands = [b.input(name, F32, (1, 8, 128, 64)) for name in "qkv"]
    b.graph.results = [b.emit("attention", *operands, scale=0.125, causal=False)]
    return b.graph


@pytest.mark.parametrize(
    ("made", "type", "counted", "most"),
    [
        (convolution(3), "Conv", 1, 1.15), (convolution(1), "Conv", 1, 1.18),
        (attention(), "Attention", 2, 1.22),
    ],
    ids=["windows", "pixels", "attention"],
)  # fmt: skip
def test_other_templates_take_lanes_too(made: Graph, type: str, counted: int, most: float) -> None:
    """Of pixels rows of the image are read where they lie, a vector at a time. The tile of an
    attention, scores or weighted values, is of four rows by four vectors: five loads of two vectors
    for 32 multiply-adds."""
    found = loops(kernel_of(made, type=type), "fmla")[:counted]
    assert len(found) == counted
    for loop in found:
        adds = [line for line in loop if line.startswith("fmla")]
        assert all(re.search(r"\.s\[\d\]$", line) for line in adds)
        assert len(adds) >= 128 and len(loop) <= most * len(adds)
        assert not any("[sp" in line for line in loop)
