"""What torch's setting allows to products of float32, in a graph and in its bodies."""

from kernelmill.compiler.precision import EXACT, depends_on_precision, under_precision
from kernelmill.config import CompilerConfig
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph

GRAPH = """graph calls(%x: f32[4, 4]) {
  body "body_1" = graph body_1(%y: f32[4, 4]) {
    %0 = matmul(%y, %y) : f32[4, 4]
    return %0
  }
  %0 = aten(%x) {args=(("body", "body_1"), "", ("tensor", 0)), binds=(), kwargs=(), reason="",
    results=((f32, (4, 4), none)), target="higher_order.invoke_subgraph"} : f32[4, 4]
  return %0
}
"""


def test_bodies_are_other_programs_by_what_is_allowed() -> None:
    graph = parse_graph(GRAPH)
    config = CompilerConfig()
    config.target = "x86-64-v4-amx-emulated"
    assert depends_on_precision(graph, config)
    assert under_precision(graph, EXACT) is graph
    found = under_precision(graph, 3)
    verify_graph(found)
    assert list(found.body_graphs()) == ["body_1_3"]
    body = found.body_graphs()["body_1_3"]
    assert body.name == "body_1_3"
    assert body.nodes[0].attrs["products"] == 3
    assert 'args=(("body", "body_1_3"), ' in print_graph(found)
    assert "products" not in graph.body_graphs()["body_1"].nodes[0].attrs
