"""Printing and parsing kernels."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import F32
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import ALL, TILE, For, If, Instr, Kernel, Let
from kernelmill.kernel.text import parse_kernel, print_kernel, print_statement
from kernelmill.kernel.verifier import verify_kernel
from tests.unit.kernel.examples import EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_of_every_statement(name: str, golden: Callable[[str, str], None]) -> None:
    kernel = EXAMPLES[name]()
    verify_kernel(kernel)
    text = print_kernel(kernel)
    golden(f"kernel/{name}.txt", text)
    again = parse_kernel(text)
    verify_kernel(again)
    assert print_kernel(again) == text


def test_the_examples_use_every_operator() -> None:
    used = {s.op for s in EXAMPLES["operators"]().body if isinstance(s, Instr)}
    assert used == ALL - TILE
    used = {s.op for s in EXAMPLES["tiles"]().body if isinstance(s, Instr)}
    assert used == TILE


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_name_can_be_left_out(name: str) -> None:
    kernel = EXAMPLES[name]()
    text = print_kernel(kernel, name=False)
    assert text.startswith("kernel _(")
    kernel.name, kernel.type = "another", "Type"
    assert print_kernel(kernel, name=False) == text
    assert print_kernel(parse_kernel(text), name=False) == text


def _copy(dims: tuple[str, str], skipped: int) -> Kernel:
    b = KernelBuilder("copy", "Copy")
    b.kernel.dims = [Sym(dims[0], 1), Sym(dims[1], 1)]
    m, n = map(of_atom, b.kernel.dims)
    b.buffer("x", F32, m * n, "in")
    b.buffer("y", F32, m * n, "out")
    for _ in range(skipped):
        b.fresh(F32)
    with b.loop(0, m) as i, b.loop(0, n) as j:
        place = i.index * n + j.index
        b.store("y", place, b.load("x", place, F32))
    return b.kernel


def test_equal_kernels_print_alike_whatever_built_them() -> None:
    assert print_kernel(_copy(("a", "b"), 0)) == print_kernel(_copy(("s1", "s0"), 17))
    # The order of the symbols matters, the order of their names does not.
    swapped = _copy(("a", "b"), 0)
    swapped.dims.reverse()
    assert print_kernel(swapped) != print_kernel(_copy(("a", "b"), 0))


def test_symbols_that_share_a_name_one_after_the_other() -> None:
    text = """
    kernel k(x: f32[8] in, y: f32[8] out) tasks(1) {
      for i = 0 to 4 step 1 { %0: f32 = load x[i] store y[i], %0 }
      for i = 0 to 4 step 1 { %1: f32 = load x[i+4] store y[i+4], %1 }
    }
    """
    printed = print_kernel(parse_kernel(text))
    assert "load x[i0]" in printed and "store y[i1+4]" in printed


def test_literals_read_back_to_the_same_bits() -> None:
    numbers = [0.0, -0.0, 0.1, 1e-45, math.inf, -math.inf, math.nan, 3, -3, True, False]
    b = KernelBuilder("k", "K")
    for number in numbers:
        b.append(Instr(b.fresh(F32), "splat", (number,)))
    read = [s.args[0] for s in parse_kernel(print_kernel(b.kernel)).body if isinstance(s, Instr)]
    assert list(map(repr, read)) == list(map(repr, numbers))


def test_every_part_is_read_back() -> None:
    kernel = parse_kernel(print_kernel(EXAMPLES["control"]()))
    assert kernel.type == "Softmax"
    assert [(d.name, d.lo, d.hi) for d in kernel.dims] == [("s0", 1, None), ("s1", 0, None)]
    loop = next(s for s in kernel.body if isinstance(s, For))
    inner = next(s for s in loop.body if isinstance(s, For))
    assert (loop.unroll, inner.unroll) == (False, True)
    assert (inner.symbol.lo, inner.symbol.hi) == (0, 3)
    let = next(s for s in kernel.body if isinstance(s, Let))
    assert (let.symbol.lo, str(let.symbol.hi)) == (0, "s1")
    branch = next(s for s in kernel.body if isinstance(s, If))
    assert [value.type.dtype.name for value in branch.results] == ["f64", "bool"]
    assert math.copysign(1, float(str(branch.otherwise_yields[0]))) == -1


def test_statements_for_messages_keep_their_names() -> None:
    b = KernelBuilder("k", "K")
    x = b.fresh(F32)
    loop = For(Sym("i7"), 0, of_atom(Sym("n")), 2, (x,), (0.0,), (b.fresh(F32),), [], (x,))
    assert print_statement(loop) == "%1 = for i7 = 0 to n step 2 carry (%0: f32 = 0.0) {"
    assert print_statement(If(x)) == "if %0 {"


HEADER = "kernel k(x: f32[4] in, y: f32[4] out) tasks(2) {\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph f()", "line 1: expected 'kernel', found 'graph'"),
        ("kernel k(x: f32[4] in) {", "line 1: expected 'tasks', found '{'"),
        ("kernel k(x: f31[4] in) tasks(1) {}", "line 1: expected a dtype, not 'f31'"),
        ("kernel k() tasks(s0) {}", "line 1: expected a known symbol, not 's0'"),
        (HEADER + "  %0: f32x = load x[0]\n}", "line 2: expected a dtype, not 'f32x'"),
        (HEADER + "  %0: f32 = load x[i]\n}", "line 2: expected a known symbol, not 'i'"),
        (HEADER + "\n  store y[0], %0\n}", "line 3: expected a register defined above, not %0"),
        (HEADER + "  %0: f32 = add(1.0, two)\n}", "line 2: expected a number, found 'two'"),
        (HEADER + "  %0: f32 = load x[0]\n  %0: f32 = load x[1]\n}", "%0 is defined above"),
        (HEADER + "  %0, %1: f32 = if %2 {}\n}", "line 2: expected 2 types before it"),
        (HEADER + "  %0, %1: f32, f32 = neg(1.0)\n}", "line 2: expected 'if', found 'neg'"),
        (HEADER + "  %0 = for i = 0 to 2 step 1 {}\n}", "line 2: expected 1 carried registers"),
        (HEADER + "  repeat {}\n}", "line 3: expected 'while', found '}'"),
        (HEADER + "  for i = 0 to 2 {}\n}", "line 2: expected 'step', found '{'"),
        (HEADER + "  goto 3\n}", "line 2: expected 'if', found 'goto'"),
        (HEADER + "  yield 1\n}", "line 3: expected no yield outside a loop or branch"),
        (HEADER + "} }", "line 2: expected the end, found '}'"),
    ],
)
def test_texts_that_are_no_kernels(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_kernel(text)
