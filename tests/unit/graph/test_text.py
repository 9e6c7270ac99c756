"""Printing and parsing graphs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kernelmill.config.super_kernel_marks import Mark
from kernelmill.core.dim import Dim, Sym, of_atom, sym
from kernelmill.core.dtype import F32, I64
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.graph.ops import OPS
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph
from tests.unit.graph.examples import EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_of_every_operator(name: str, golden: Callable[[str, str], None]) -> None:
    graph = EXAMPLES[name]()
    verify_graph(graph)
    text = print_graph(graph)
    golden(f"graph/{name}.txt", text)
    again = parse_graph(text)
    verify_graph(again)
    assert print_graph(again) == text


def test_the_examples_use_every_operator() -> None:
    used = {node.op for build in EXAMPLES.values() for node in build().nodes}
    assert used == set(OPS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_without_names_reads_back(name: str) -> None:
    text = print_graph(EXAMPLES[name](), names=False)
    assert print_graph(parse_graph(text), names=False) == text


def _graph(symbol: str, value: str, skipped: int, attrs_reversed: bool = False) -> Graph:
    b = GraphBuilder(value)
    s = sym(symbol, 1)
    t = of_atom(Sym(f"z{symbol}", 0, s * 4))
    b.symbol(Sym(f"z{symbol}", 0, s * 4))
    b.dim_input(s)
    b.dim_input(t)
    x = b.input(value, F32, (s, 8))
    for _ in range(skipped):
        b.emit("neg", x)
    del b.graph.nodes[:]
    b.origin = value
    attrs: dict[str, object] = {"dims": (0,)}
    wide = {"shape": (s * t, 3), "value": 1.0, "dtype": F32}
    if attrs_reversed:
        wide = dict(reversed(wide.items()))
    b.graph.results = [b.emit("flip", x, **attrs), b.emit("full", **wide)]  # type: ignore[arg-type]
    return b.graph


def test_equal_graphs_print_alike_whatever_built_them() -> None:
    first, second = _graph("s9", "x", 0), _graph("a", "y", 7, attrs_reversed=True)
    assert print_graph(first, names=False) == print_graph(second, names=False)
    assert print_graph(first) != print_graph(second)


def test_the_order_of_terms_follows_the_new_names() -> None:
    def build(first: str, second: str) -> Graph:
        b = GraphBuilder("g")
        for name in (first, second):
            b.dim_input(sym(name))
        b.graph.results = [sym(first) * 2 + sym(second), (sym(first) - sym(second)) // 3]
        return b.graph

    assert print_graph(build("a", "b")) == print_graph(build("b", "a"))


def test_numbers_read_back_to_the_same_bits() -> None:
    graph = parse_graph(print_graph(EXAMPLES["constants"]()))
    values = [node.attrs["value"] for node in graph.nodes]
    assert [type(value) for value in values] == [float] * 9 + [int, bool]
    assert math.copysign(1, values[1]) == -1  # type: ignore[arg-type]
    assert values[2:8] == [0.1, 1e22, 5e-324, -2.5, math.inf, -math.inf]
    assert math.isnan(values[8])  # type: ignore[arg-type]


def test_strings_and_scopes_read_back() -> None:
    graph = parse_graph(print_graph(EXAMPLES["symbolic"]()))
    scoped = [node for node in graph.nodes if node.mark]
    assert scoped[0].origin == 'model.py:12: return self.f(x) + "é"'
    assert scoped[0].mark == Mark("decoder/layer.0")
    assert graph.nodes[-1].attrs["reason"] == 'data-dependent "size"\n'


def test_a_value_that_is_nowhere_defined_still_prints() -> None:
    b = GraphBuilder("broken")
    x = b.input("x", F32, (2,))
    b.graph.results = [b.emit("neg", b.emit("abs", x))]
    del b.graph.nodes[0]
    assert "%0 = neg(%undefined.0)" in print_graph(b.graph)


def test_inputs_with_one_name_are_told_apart() -> None:
    b = GraphBuilder("twice")
    b.graph.results = [b.input("x", F32, ()), b.input("x", F32, ())]
    assert "return %x, %x.2" in print_graph(b.graph)
    assert print_graph(parse_graph(print_graph(b.graph))) == print_graph(b.graph)


HEADER = "graph f(%x: f32[4], s0: dim) symbols(s0) {\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel f()", "line 1: expected 'graph', found 'kernel'"),
        ("graph f(", "line 1: expected more, found the end"),
        ("graph f(%x: f33[4]) { return }", "line 1: expected a dtype"),
        ("graph f(%x: f32[s1]) { return }", "line 1: expected a known symbol, not 's1'"),
        ("graph f(%x: f32[2], %x: f32[2]) { return }", "expected a new name, but %x is defined"),
        (
            "graph f(%x: f32[2] guest) {}",
            "line 1: expected one of user, param, buffer, found 'guest'",
        ),
        (HEADER + "  return %y\n}", "line 2: expected a value defined above, not %y"),
        (HEADER + "\n\n  %0 = neg(%x) f32[4]", "line 4: expected ':', found 'f32'"),
        (HEADER + "  %0 = neg(%x) {a=what} : f32[4]", "line 2: expected a literal, not 'what'"),
        (HEADER + "  %0, %1 = aten(%x) : f32[4]\n return\n}", "line 3: expected ',', found 'ret"),
        (HEADER + "  return <s0 +>\n}", "line 2: expected a dim, found '>'"),
        (HEADER + "  return\n} more", "line 3: expected the end, found 'more'"),
        (HEADER + '  %0 = neg(%x) {a="\\q"} : f32[4]', "line 2: expected a string with JSON"),
        (HEADER + "  return ;", "line 2: unexpected character ';'"),
    ],
)
def test_texts_that_are_no_graphs(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("+", r"\+")):
        parse_graph(text)


def test_a_parsed_symbol_keeps_its_range() -> None:
    graph = parse_graph("graph f(s0: dim) symbols(s0 in [2, inf], s1 in [-1, s0*2]) { return }")
    high: Dim | None = graph.symbols["s1"].hi
    assert (graph.symbols["s0"].lo, graph.symbols["s0"].hi) == (2, None)
    assert (graph.symbols["s1"].lo, str(high)) == (-1, "s0*2")


def test_an_integer_dtype_is_no_dim() -> None:
    b = GraphBuilder("g")
    node = b.emit("full", value=1, dtype=I64, shape=()).node
    assert node is not None
    assert parse_graph(print_graph(b.graph)).nodes[0].attrs["dtype"] is I64
