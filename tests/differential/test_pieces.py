"""Products of f32 by pieces of bf16 on emulated tiles, held against float64 and eager."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import Dim, Sym, evaluate, of_atom
from kernelmill.core.dtype import F32, InputRole
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.emit.pieces import DEPTH
from kernelmill.runtime.program import Program
from tests.compiled import lowered, program
from tests.unit.lower.for_tiles import ALWAYS

PRECISIONS = {"highest": None, "high": 3, "medium": 1}
LEFT_OUT = {"highest": 0.0, "high": 2.0**-15, "medium": 2.0**-7}
LEAST = 2.0**-149
LARGEST = torch.finfo(torch.float32).max


def product(m: Dim, k: int, n: int, constant: bool, turned: bool, precision: str) -> Graph:
    """x @ w, where w may be a parameter, and may be (n, k) in memory."""
    b = GraphBuilder("product")
    x = b.input("x", F32, (m, k))
    role = InputRole.PARAM if constant else InputRole.USER
    w = b.input("w", F32, (n, k) if turned else (k, n), role=role)
    right = b.emit("permute", w, dims=(1, 0)) if turned else w
    products = PRECISIONS[precision]
    attrs = {} if products is None else {"products": products}
    b.graph.results = [b.emit("matmul", x, right, **attrs)]
    return b.graph


@cache
def compiled(k: int, n: int, constant: bool, turned: bool, precision: str) -> Program:
    """For any number of rows. That it is made of pieces is seen in the kernel's text."""
    graph = product(of_atom(Sym("s0", 1)), k, n, constant, turned, precision)
    made = lowered(graph, ALWAYS)
    (kernel,) = (one for one in made.kernels.values() if one.type == "MatMul")
    wanted = k >= (32 if precision == "highest" else 1)
    assert ("tile_dot" in print_kernel(kernel)) == wanted
    return program(made)


def result(program: Program, *given: Tensor) -> Tensor:
    """Its only one."""
    (found,) = program(*given)
    assert isinstance(found, Tensor)
    return found


def bound(k: int, precision: str) -> float:
    """Of errors, as part of the sum of magnitudes (lower/emit/pieces.py, or those of FMA)."""
    by_pieces = -(-min(k, DEPTH) // 32) + -(-k // DEPTH) + 20
    return max(by_pieces, k) * 2.0**-24 + LEFT_OUT[precision]


def check(program: Program, a: Tensor, b: Tensor, turned: bool, precision: str) -> Tensor:
    """What is computed of finite numbers whose sums do not overflow."""
    k = a.shape[1]
    found = result(program, a, b.T.contiguous() if turned else b)
    exact = a.double() @ b.double()
    size = a.double().abs() @ b.double().abs()
    error = (found.double() - exact).abs()
    allowed = size * bound(k, precision) + k * LEAST
    assert (error <= allowed).all(), (error / (size + LEAST)).max() * 2**24
    return error


EDGES = [
    (33, 16, False, True, "highest"), (64, 31, True, False, "highest"),
    (65, 33, False, False, "highest"), (96, 48, True, True, "highest"),
    (127, 70, False, True, "highest"), (130, 15, True, True, "highest"),
    (32, 1, True, True, "highest"), (32, 1, False, False, "highest"),
    (8, 20, True, True, "highest"), (8, 20, False, False, "highest"),
    (63, 17, True, True, "high"), (65, 33, False, False, "high"), (1, 1, False, True, "high"),
    (130, 70, True, False, "medium"), (31, 33, False, True, "medium"),
]  # fmt: skip


@pytest.mark.parametrize(("k", "n", "constant", "turned", "precision"), EDGES)
def test_edges(k: int, n: int, constant: bool, turned: bool, precision: str) -> None:
    torch.manual_seed(k)
    run = compiled(k, n, constant, turned, precision)
    b = torch.randn(k, n)
    for m in (1, 2, 15, 16, 17, 31, 32, 33, 48, 70):
        check(run, torch.randn(m, k), b, turned, precision)


POWERS = (-140, -126, -110, -104, -90, -60, -30, 0, 30, 60)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("constant", [True, False])
def test_magnitudes(constant: bool, precision: str) -> None:
    run = compiled(65, 33, constant, True, precision)
    torch.manual_seed(1)
    for left in POWERS:
        for right in POWERS:
            check(
                run,
                torch.randn(35, 65) * 2.0**left,
                torch.randn(65, 33) * 2.0**right,
                True,
                precision,
            )
    spread = 10.0 ** torch.empty(35, 65).uniform_(-38, 18)
    check(run, torch.randn(35, 65) * spread, torch.randn(65, 33), True, precision)
    check(run, spread, 10.0 ** torch.empty(65, 33).uniform_(-38, 18), True, precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("constant", [True, False])
def test_denormals(constant: bool, precision: str) -> None:
    run = compiled(65, 33, constant, True, precision)
    torch.manual_seed(2)
    a, b = torch.randn(35, 65), torch.randn(65, 33)
    few = torch.rand(35, 65) < 0.01
    for tiny in (2.0**-149, 2.0**-127, 2.0**-115):
        check(run, torch.where(few, tiny, a), b, True, precision)
        check(run, a, torch.where(torch.rand(65, 33) < 0.01, -tiny, b), True, precision)
        check(run, torch.full_like(a, tiny), b * 2.0**20, True, precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan, LARGEST, -LARGEST])
def test_what_is_no_ordinary_number_comes_out_as_eager(
    special: float, constant: bool, precision: str
) -> None:
    run = compiled(65, 33, constant, True, precision)
    torch.manual_seed(3)
    for place in ("a", "b", "both"):
        a, b = torch.rand(35, 65) + 1, torch.rand(65, 33) + 1
        a[5, 7] = 0.0
        if place != "b":
            a[3, 4] = a[34, 64] = special
        if place != "a":
            b[7, 2] = b[64, 32] = special
        found = result(run, a, b.T.contiguous())
        eager = a @ b
        assert torch.equal(found.isnan(), eager.isnan())
        infinite = eager.isinf()
        assert torch.equal(found.isinf(), infinite)
        assert torch.equal(found[infinite], eager[infinite])
        finite = ~infinite & ~eager.isnan()
        torch.testing.assert_close(found[finite], eager[finite], rtol=bound(65, precision), atol=0)


def fma_in_blocks(a: Tensor, b: Tensor, block: int = 256) -> Tensor:
    """a @ b by FMA in the order of k, blocks of which are summed by themselves."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], block):
        part = torch.zeros_like(total)
        for k in range(start, min(start + block, a.shape[1])):
            part = (a[:, k : k + 1].double() * b[k].double() + part.double()).float()
        total = total + part
    return total


@pytest.mark.parametrize(("k", "n"), [(65, 33), (127, 70), (768, 64), (3072, 64)])
def test_errors_of_highest_are_below_those_of_fma_in_blocks(k: int, n: int) -> None:
    torch.manual_seed(4)
    run = compiled(k, n, True, True, "highest")
    a, b = torch.randn(48, k), torch.randn(k, n)
    for left, right in ((a, b), (a.relu(), b), (a.abs() + 1, b.abs() + 1)):
        error = check(run, left, right, True, "highest")
        exact, size = left.double() @ right.double(), left.double().abs() @ right.double().abs()
        by_fma = (fma_in_blocks(left, right).double() - exact).abs()
        assert (error / size).norm() < (by_fma / size).norm()


def test_products_by_one_are_exact() -> None:
    run = compiled(65, 33, False, True, "highest")
    torch.manual_seed(5)
    a, b = torch.randn(35, 65), torch.zeros(65, 33)
    chosen = torch.randint(0, 65, (33,))
    b[chosen, torch.arange(33)] = 1.0
    found = result(run, a, b.T.contiguous())
    assert torch.equal(found, a[:, chosen])


def test_zeros_have_no_sign() -> None:
    run = compiled(65, 33, False, True, "highest")
    for a in (torch.zeros(35, 65), -torch.zeros(35, 65)):
        found = result(run, a, torch.randn(33, 65))
        assert torch.equal(found, torch.zeros(35, 33)) and not found.signbit().any()


def swapped(b: GraphBuilder, value: Value) -> Value:
    """The last two axes the other way round."""
    rank = len(value.shape)
    return b.emit("permute", value, dims=(*range(rank - 2), rank - 1, rank - 2))


FORMS: dict[str, Callable[[GraphBuilder, Value, Value], Value]] = {
    "as they are": lambda b, x, w: b.emit("matmul", x, w),
    "rows of A are columns": lambda b, x, w: b.emit("matmul", swapped(b, x), w),
    "both turned": lambda b, x, w: b.emit("matmul", swapped(b, x), swapped(b, w)),
    "operands computed": lambda b, x, w: b.emit("matmul", b.emit("neg", x), b.emit("abs", w)),
    "result turned": lambda b, x, w: swapped(b, b.emit("matmul", x, w)),
    "an epilogue": lambda b, x, w: b.emit("neg", b.emit("matmul", x, w)),
}


@pytest.mark.parametrize(
    ("symbolic", "batch", "role"),
    [(False, (), InputRole.PARAM), (False, (3,), InputRole.USER), (True, (3,), InputRole.PARAM)],
)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, symbolic: bool, batch: tuple[int, ...], role: InputRole) -> None:
    sizes = 18, 65, 33
    m, k, n = (of_atom(Sym(f"s{i}", 1)) for i in range(3)) if symbolic else sizes
    b = GraphBuilder("product")
    turns = form in ("rows of A are columns", "both turned"), form == "both turned"
    shapes = [
        (*batch, *((k, m) if turns[0] else (m, k))),
        (*batch, *((n, k) if turns[1] else (k, n))),
    ]
    x = b.input("x", F32, shapes[0])
    w = b.input("w", F32, shapes[1], role=role)
    b.graph.results = [FORMS[form](b, x, w)]
    made = lowered(b.graph, ALWAYS)
    assert any("tile_dot" in print_kernel(kernel) for kernel in made.kernels.values())
    run = program(made)
    torch.manual_seed(6)
    known = {"s0": sizes[0], "s1": sizes[1], "s2": sizes[2]}
    values = [torch.randn([evaluate(size, known) for size in shape]) for shape in shapes]
    for special in (None, torch.inf, 2.0**-149):
        if special is not None:
            values[0].view(-1)[5] = special
        found = result(run, *values)
        (exact,) = run_graph(b.graph, values)
        assert isinstance(exact, Tensor)
        assert torch.equal(found.isnan(), exact.isnan())
        numbers = ~exact.isnan()
        torch.testing.assert_close(found[numbers], exact[numbers], rtol=1e-5, atol=2e-5)


def test_few_products_of_a_size_that_is_found_out_are_those_of_fma() -> None:
    m, k, n = (of_atom(Sym(f"s{i}", 1)) for i in range(3))
    programs = list[Program]()
    for products in (dict[str, int](), {"products": 0}):
        b = GraphBuilder("product")
        x, w = b.input("x", F32, (m, k)), b.input("w", F32, (k, n))
        b.graph.results = [b.emit("matmul", x, w, **products)]
        programs.append(program(lowered(b.graph, ALWAYS)))
    by_pieces, by_fma = programs
    torch.manual_seed(7)
    for depth in (1, 7, 31, 32):
        given = torch.randn(17, depth), torch.randn(depth, 33)
        same = torch.equal(result(by_pieces, *given), result(by_fma, *given))
        assert same == (depth < 32)
