"""Numbers in place of symbols."""

import torch

from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import F32, I64
from kernelmill.graph.builder import GraphBuilder, at_sizes
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph


def test_sizes_attributes_results_and_strides_become_numbers():
    n = of_atom(Sym("n", 2))
    b = GraphBuilder("g")
    b.dim_input(n)
    x = b.input("x", F32, (n, 3), (1, n))
    y = b.emit("reshape", x, shape=(3, n))
    b.graph.results = [b.emit("exp", y), n * 2]
    expected = """graph g(
      %x: f32[5, 3]{1, 5}
    ) {
      %0 = reshape(%x) {shape=(3, 5)} : f32[3, 5]
      %1 = exp(%0) : f32[3, 5]
      return %1, <10>
    }"""
    fixed = at_sizes(b.graph, {"n": 5})
    assert print_graph(fixed) == print_graph(parse_graph(expected))
    assert not fixed.symbols


def test_a_symbol_without_a_value_stays():
    n, m = of_atom(Sym("n", 2)), of_atom(Sym("m", 2))
    b = GraphBuilder("g")
    b.dim_input(n)
    b.dim_input(m)
    b.graph.results = [b.input("x", F32, (n, m)), n + m]
    fixed = at_sizes(b.graph, {"n": 4})
    assert list(fixed.symbols) == ["m"]
    assert len(fixed.inputs) == 2
    assert str(fixed.results[1]) == "m+4"


TEXT = """
graph g(s0: dim, %x: f32[s0, 4], s1: dim, %y: f32[s1, 4]) symbols(s0 in [2, inf], s1 in [2, inf]) {
  %0 = reshape(%x) {shape=(<4*s0>)} : f32[4*s0]
  %1 = neg(%0) : f32[4*s0]
  %2 = abs(%y) : f32[s1, 4]
  return %1, <2*s0>, %2
}
"""


def test_it_computes_the_same():
    graph = parse_graph(TEXT)
    x, y = torch.randn(3, 4), torch.randn(2, 4)
    negated, size, positive = run_graph(graph, [3, x, 2, y])
    found = run_graph(at_sizes(graph, {"s0": 3, "s1": 2}, "g_3_2"), [x, y])
    assert isinstance(found[0], torch.Tensor) and isinstance(negated, torch.Tensor)
    assert isinstance(found[2], torch.Tensor) and isinstance(positive, torch.Tensor)
    assert torch.equal(found[0], negated) and torch.equal(found[2], positive)
    assert found[1] == size == 6


def test_bounds_over_symbols_that_go():
    s0 = of_atom(Sym("s0", 2))
    b = GraphBuilder("g")
    x = b.input("x", F32, (s0,))
    found = Sym("s1", 0, s0 * 2)
    b.symbol(found)
    kind = ((I64, (of_atom(found), 1), None),)
    call = {"args": (("tensor", 0),), "kwargs": (), "binds": (("s1", 0, 0),), "reason": ""}
    b.graph.results = [b.emit("aten", x, target="aten.nonzero.default", results=kind, **call)]
    graph = at_sizes(b.graph, {"s0": 3})
    verify_graph(graph, "at_sizes")
    assert "[0, 6]" in print_graph(graph)
