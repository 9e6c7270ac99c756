"""The instructions of products on tiles: made for the unit, and read as text; they run nowhere
here."""

from __future__ import annotations

import re

import pytest

from kernelmill.codegen.compile import assembly
from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, F32, I8, I32, DType
from kernelmill.graph.ir import Graph
from kernelmill.kernel.ir import Kernel
from tests.compiled import graph, lowered
from tests.unit.lower.for_tiles import ALWAYS, AMX
from tests.unit.lower.templates.matmul.test_tiled import product, with_epilogue


def code(made: Graph, always: bool = False) -> str:
    """The assembly of its product."""
    (kernel,) = (
        kernel
        for kernel in lowered(made, ALWAYS if always else AMX).kernels.values()
        if kernel.type.startswith("MatMul")
    )
    return tile_code(kernel)


def tile_code(kernel: Kernel) -> str:
    """Its assembly, in which no tile goes to the stack."""
    text = assembly(kernel, AMX.isa)
    assert "(%rsp" not in "".join(re.findall(r"\ttile(?:loadd|stored).*", text))
    return text


def inner_loops(text: str) -> list[str]:
    """Loops without one inside that have a product of tiles."""
    loops = re.findall(r"^\.LBB\S+:[^\n]*\n((?:\t(?!j).*\n)*)\tj", text, re.MULTILINE)
    return [body for body in loops if "\ttdp" in body]


def counts(loop: str) -> tuple[int, int, int]:
    """Tiles loaded, multiplied and stored."""
    return loop.count("\ttileloadd"), loop.count("\ttdp"), loop.count("\ttilestored")


@pytest.mark.parametrize(("dtype", "name"), [(BF16, "tdpbf16ps"), (I8, "tdpbssd")])
@pytest.mark.parametrize("k", [768, 3072])
def test_the_inner_loop_is_four_loads_and_four_products(dtype: DType, name: str, k: int) -> None:
    text = code(product(dtype, F32 if dtype == BF16 else I32, "b", "b")(128, k, 768))
    (loop,) = inner_loops(text)
    assert counts(loop) == (4, 4, 0) and loop.count(name) == 4
    assert len(loop.splitlines()) <= 16, "little more than that"


def test_of_few_rows_a_tile_of_them_meets_four_of_columns() -> None:
    (loop,) = inner_loops(code(product(BF16, F32, "b", "b")(8, 768, 768)))
    assert counts(loop) == (5, 4, 0)


@pytest.mark.parametrize("sizes", [(48, 960, 80), (sym("m", 2), sym("k"), sym("n"))], ids=str)
def test_edges_have_loops_of_their_own(sizes: tuple[Dim, Dim, Dim]) -> None:
    found = sorted(map(counts, inner_loops(code(product(BF16, F32)(*sizes), always=True))))
    assert set(found) == {(2, 1, 0), (3, 2, 0), (4, 4, 0)} and len(found) == 4


def test_tiles_are_configured_once_where_nothing_is_called() -> None:
    text = code(product(BF16, BF16, "b", "b")(128, 768, 768))
    assert text.count("\tldtilecfg\t") == 1 == text.count("\ttilerelease\n")


def test_no_tile_is_kept_over_a_library_call() -> None:
    """Sums are in scratch by then, and tiles are configured anew behind it."""
    made = graph(with_epilogue, (BF16, (1, 64, 96)), (BF16, (1, 96, 64)), (F32, (64,)))
    text = code(made, always=True)
    parts = re.split(r"\tcallq?\t", text)
    assert len(parts) > 1 and "tdpbf16ps" in text
    for part in parts[1:]:
        first = re.search(r"\t(tile(?:zero|loadd|stored)|tdp\w+|ldtilecfg)\t", part)
        assert first is None or first[1] == "ldtilecfg"
