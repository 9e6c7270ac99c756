"""How many products of bf16 are allowed for one of f32 is said of products of f32 alone."""

from __future__ import annotations

import pytest

from kernelmill.core.dtype import BF16, F32, DType
from kernelmill.core.errors import VerificationError
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.typing import TypingError
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes.integer_products import AllowProducts


def product(dtype: DType, **attrs: int) -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", dtype, (4, 4))
    b.graph.results = [b.emit("exp", b.emit("matmul", x, x, **attrs))]
    return b.graph


def test_products_of_f32_are_marked_and_marked_anew() -> None:
    graph = product(F32)
    text = print_graph(graph)
    for count in (3, 1, 0):
        marked = AllowProducts(count).apply(graph)
        verify_graph(marked)
        assert [node.attrs for node in marked.nodes] == [{"products": count}, {}]
        assert print_graph(parse_graph(print_graph(marked))) == print_graph(marked)
        graph = marked
    assert print_graph(product(F32)) == text


def test_where_there_are_none_the_graph_is_the_same() -> None:
    graph = product(BF16)
    assert AllowProducts(3).apply(graph) is graph


@pytest.mark.parametrize(("dtype", "count"), [(BF16, 3), (F32, 2), (F32, 6), (F32, -1)])
def test_others_are_refused(dtype: DType, count: int) -> None:
    with pytest.raises((TypingError, VerificationError), match="products"):
        verify_graph(product(dtype, products=count))
