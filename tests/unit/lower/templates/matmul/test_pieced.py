"""Products of f32 by pieces: where they are chosen, how tasks are cut, and their instructions."""

from __future__ import annotations

import re

import pytest

from kernelmill.codegen import assembly
from kernelmill.core.dim import Dim, Sym, of_atom
from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.target.machine import Machine, profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import print_kernel
from tests.compiled import lowered

AMX = profile("x86-64-v4-amx")


def kernel(
    m: Dim, k: Dim, n: Dim, machine: Machine = AMX, constant: bool = True,
    products: int | None = None,
) -> Kernel:  # fmt: skip
    """Of x @ w.T."""
    attrs = {} if products is None else {"products": products}
    b = GraphBuilder("product")
    x = b.input("x", F32, (m, k))
    w = b.input("w", F32, (n, k), role=InputRole.PARAM if constant else InputRole.USER)
    b.graph.results = [b.emit("matmul", x, b.emit("permute", w, dims=(1, 0)), **attrs)]
    made = lowered(b.graph, machine)
    (found,) = (one for one in made.kernels.values() if one.type == "MatMul")
    return found


@pytest.mark.parametrize("constant", [True, False])
def test_pieces_are_taken_where_they_are_faster(constant: bool) -> None:
    assert "tile_dot" in print_kernel(kernel(128, 768, 768, constant=constant))
    assert "tile_dot" in print_kernel(kernel(128, 768, 768, constant=constant, products=3))
    assert "tile_dot" not in print_kernel(kernel(1, 768, 768, constant=constant))
    assert "tile_dot" not in print_kernel(kernel(128, 768, 768, constant=constant, products=0))
    assert "tile_dot" not in print_kernel(kernel(128, 31, 768, constant=constant))
    level = profile("x86-64-v4")
    assert "tile_dot" not in print_kernel(kernel(128, 768, 768, level, constant))


def test_a_setting_changes_nothing_where_there_are_no_tiles() -> None:
    for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4-bf16"):
        texts = {
            print_kernel(kernel(128, 768, 768, profile(name), products=products))
            for products in (None, 0, 1, 3)
        }
        assert len(texts) == 1


@pytest.mark.parametrize(("products", "loops"), [(None, 6), (3, 3), (1, 1)])
def test_each_product_of_pieces_is_a_loop_of_four_loads_and_four_products(
    products: int | None, loops: int
) -> None:
    text = assembly(kernel(128, 768, 768, products=products), AMX.isa)
    bodies = re.findall(r"^\.LBB\S+:\n((?:\t(?!j).*\n)*)\tj", text, re.MULTILINE)
    inner = [body for body in bodies if "tdpbf16ps" in body]
    assert len(inner) == loops
    for body in inner:
        assert (body.count("tileloadd"), body.count("tdpbf16ps")) == (4, 4)
        assert "tilestored" not in body and "rsp" not in body
    assert "vfmadd" in text


def test_sizes_may_be_symbolic() -> None:
    m, k, n = (of_atom(Sym(f"s{number}", 256)) for number in range(3))
    found = print_kernel(kernel(m, k, n, constant=False))
    assert "tile_dot" in found
