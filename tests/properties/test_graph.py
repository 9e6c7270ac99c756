"""Random graphs: they verify, their text reads back, they run; broken ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelmill.core.dim import of_atom
from kernelmill.core.dtype import F32, F64
from kernelmill.core.errors import VerificationError
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Node, TensorType
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph
from tests.strategies import arguments, graphs

ANY = st.booleans().flatmap(lambda symbolic: graphs(symbolic=symbolic))


@given(ANY)
def test_generated_graphs_verify(graph: Graph) -> None:
    verify_graph(graph)


@given(ANY, st.booleans())
def test_text_reads_back(graph: Graph, names: bool) -> None:
    sizes = [of_atom(symbol) for symbol in graph.symbols.values()]
    graph = replace(graph, equations=[(size // 2, size % 3 + 1) for size in sizes])
    text = print_graph(graph, names)
    again = parse_graph(text)
    verify_graph(again)
    assert print_graph(again, names) == text


@given(ANY, st.integers(0, 100), st.booleans())
def test_a_graph_read_back_means_the_same(graph: Graph, seed: int, specials: bool) -> None:
    inputs = arguments(graph, seed, specials)
    again = parse_graph(print_graph(graph))
    for mine, theirs in zip(run_graph(graph, inputs), run_graph(again, inputs), strict=True):
        assert isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor)
        assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


def _used(graph: Graph) -> list[Node]:
    users = graph.users()
    return [node for node in graph.nodes if any(value in users for value in node.results)]


def _drop(graph: Graph, node: Node) -> None:
    graph.nodes.remove(node)


def _move_to_the_end(graph: Graph, node: Node) -> None:
    graph.nodes.remove(node)
    graph.nodes.append(node)


def _repeat(graph: Graph, node: Node) -> None:
    graph.nodes.append(node)


def _retype(graph: Graph, node: Node) -> None:
    kind = node.result.type
    node.result.type = TensorType(F32 if kind.dtype != F32 else F64, kind.shape, kind.strides)


def _reshape(graph: Graph, node: Node) -> None:
    kind = node.result.type
    node.result.type = TensorType(kind.dtype, (*kind.shape, 2))


def _rename(graph: Graph, node: Node) -> None:
    node.op += "_"


def _operands(graph: Graph, node: Node) -> None:
    node.operands = (*node.operands, node.result)


def _extra(graph: Graph, node: Node) -> None:
    node.attrs["nothing"] = 1


def _lose(graph: Graph, node: Node) -> None:
    assume(bool(node.attrs))
    del node.attrs[sorted(node.attrs)[0]]


@pytest.mark.parametrize(
    "change",
    [_drop, _move_to_the_end, _repeat, _retype, _reshape, _rename, _operands, _extra, _lose],
)
def test_broken_graphs_are_refused(change: Callable[[Graph, Node], None]) -> None:
    @settings(max_examples=15)
    @given(ANY, st.data())
    def check(graph: Graph, data: st.DataObject) -> None:
        nodes = _used(graph)
        assume(nodes)
        change(graph, data.draw(st.sampled_from(nodes)))
        with pytest.raises(VerificationError, match=r"graph random: "):
            verify_graph(graph)

    check()
