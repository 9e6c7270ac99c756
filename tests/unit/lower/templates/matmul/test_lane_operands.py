"""Products of AArch64: a multiply-add takes a lane of A's rows. Made there, and read as text."""

from __future__ import annotations

import re

import pytest

from kernelmill.codegen.compile import assembly
from kernelmill.core.dtype import BF16, F32, F64, I8, I32, DType
from kernelmill.core.machine import PROFILES
from kernelmill.graph.ir import Graph
from kernelmill.kernel.ir import Instr, Kernel
from kernelmill.kernel.walk import statements_of
from tests.compiled import lowered
from tests.unit.lower.templates.matmul.test_tiled import product

NEON, V8_6 = PROFILES["aarch64-neon"], PROFILES["aarch64-v8.6"]


def kernel_of(made: Graph, dot: bool = False) -> Kernel:
    machine = V8_6 if dot else NEON
    found = lowered(made, machine).kernels.values()
    (kernel,) = (kernel for kernel in found if kernel.type.startswith("MatMul"))
    return kernel


def loops(kernel: Kernel, word: str, dot: bool = False) -> list[list[str]]:
    """The instructions of each innermost loop that has `word`, the one with most of them first."""
    text = assembly(kernel, (V8_6 if dot else NEON).isa)
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
    kernel = kernel_of(product(BF16, F32, "b", "b")(128, 768, 768), dot=True)
    loop = loops(kernel, "bfdot", dot=True)[0]
    assert not any(line.startswith(("fmla", "shl")) for line in loop)


def test_products_of_bytes_are_by_lane_too() -> None:
    kernel = kernel_of(product(I8, I32, "b", "b")(128, 768, 768), dot=True)
    loop = loops(kernel, "sdot", dot=True)[0]
    assert len(loop) <= 1.15 * sum(line.startswith("sdot") for line in loop)
    assert not any("[sp" in line for line in loop)
