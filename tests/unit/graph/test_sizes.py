"""Numbers in place of symbols."""

from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import F32
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.parser import parse_graph
from kernelmill.graph.printer import print_graph
from kernelmill.graph.sizes import at_sizes


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
