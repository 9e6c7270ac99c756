"""What the graph verifier refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from kernelmill.core.dim import Sym, sym
from kernelmill.core.dtype import BOOL, F32, F64, I64, InputRole
from kernelmill.core.errors import VerificationError
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import DimInput, Graph, Input, Node, TensorType, Value
from kernelmill.graph.text import parse_graph
from kernelmill.graph.typing import TypingError
from kernelmill.graph.verifier import verify_graph


def base() -> Graph:
    graph = parse_graph(
        """
        graph f(%x: f32[s0, 4], %y: f32[s0, 4], %i: i64[s0], s0: dim) symbols(s0 in [1, inf]) {
          %0 = add(%x, %y) : f32[s0, 4]
          %1 = reduce_sum(%0) {dims=(1)} : f32[s0]
          %2 = aten(%0, %i) {args=(("tensor", 0), 0, ("tensor", 1)), binds=(("s1", 0, 0)),
               kwargs=(), reason="", results=((f32, (<s0>, 4), none)), target="aten.f.default"}
               : f32[s0, 4]
          return %1, <s0+1>, none, %2 update(%x <- %0)
        }
        """.replace("symbols(s0 in [1, inf])", "symbols(s0 in [1, inf], s1)")
    )
    verify_graph(graph)
    return graph


def _set_type(graph: Graph, number: int, kind: TensorType) -> None:
    graph.nodes[number].result.type = kind


def _attr(number: int, name: str, value: object) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        graph.nodes[number].attrs[name] = value  # type: ignore[assignment]

    return change


def _operand(graph: Graph, number: int, value: Value) -> None:
    node = graph.nodes[number]
    node.operands = (value, *node.operands[1:])


def _input(graph: Graph, number: int) -> Value:
    entry = graph.inputs[number]
    assert isinstance(entry, Input)
    return entry.value


S = sym("s0", 1)
STRAY = Value("stray", TensorType(F32, (S, 4)))

BROKEN: dict[str, tuple[Callable[[Graph], object], str]] = {
    "operand defined later": (lambda g: g.nodes.reverse(), "is not defined here"),
    "operand from nowhere": (lambda g: _operand(g, 0, STRAY), "add.*%stray is not defined here"),
    "node twice": (lambda g: g.nodes.insert(1, g.nodes[0]), "%0 is defined twice"),
    "no such operator": (lambda g: setattr(g.nodes[0], "op", "plus"), "no operator 'plus'"),
    "too few operands": (lambda g: setattr(g.nodes[0], "operands", ()), "takes 2 operands, not 0"),
    "result dtype": (lambda g: _set_type(g, 0, TensorType(F64, (S, 4))), "%0 is f32\\[s0, 4\\]"),
    "result shape": (lambda g: _set_type(g, 1, TensorType(F32, (4,))), "%1 is f32\\[s0\\]"),
    "result strides": (lambda g: _set_type(g, 0, TensorType(F32, (S, 4), (1, S))), "%0 is"),
    "result count": (lambda g: setattr(g.nodes[0], "results", ()), "1 results, not 0"),
    "foreign result": (lambda g: setattr(g.nodes[0].result, "node", None), "does not point to"),
    "unknown attribute": (_attr(0, "alpha", 1), "add has no attribute alpha"),
    "missing attribute": (lambda g: g.nodes[1].attrs.clear(), "needs the attributes dims"),
    "attribute kind": (_attr(1, "dims", 1), "the attribute dims=1"),
    "attribute item": (_attr(1, "dims", ("1",)), "the attribute dims="),
    "dim out of range": (_attr(1, "dims", (2,)), "do not fit rank 2"),
    "negative dim": (_attr(1, "dims", (-1,)), "do not fit rank 2"),
    "object as attribute": (_attr(2, "reason", object()), "holds a object"),
    "symbol in attribute": (_attr(2, "kwargs", (("n", sym("q")),)), "nothing binds the symbol q"),
    "tensor argument": (_attr(2, "args", (("tensor", 2),)), "none of 2 operands"),
    "bind of no result": (_attr(2, "binds", (("s1", 1, 0),)), "does not bind a symbol"),
    "bind of no dim": (_attr(2, "binds", (("s1", 0, 2),)), "has no dim 2 to bind s1"),
    "bind of the unknown": (_attr(2, "binds", (("s2", 0, 0),)), "does not declare s2"),
    "bind twice": (_attr(2, "binds", (("s0", 0, 0),)), "s0 is bound twice"),
    "aten without target": (_attr(2, "target", None), "the target None"),
    "role": (
        lambda g: g.inputs.__setitem__(0, Input(_input(g, 0), cast(InputRole, "w"))),
        "has the role 'w'",
    ),
    "input twice": (lambda g: g.inputs.append(g.inputs[0]), "input %x is there twice"),
    "input of a node": (lambda g: setattr(_input(g, 0), "node", g.nodes[0]), "result of a node"),
    "negative size": (lambda g: setattr(_input(g, 2), "type", TensorType(I64, (-1,))), "negative"),
    "strides": (lambda g: setattr(_input(g, 2), "type", TensorType(I64, (S,), ())), "0 strides"),
    "symbol not declared": (lambda g: g.symbols.clear(), "does not declare the symbols s0"),
    "dim input unknown": (lambda g: g.inputs.append(DimInput(Sym("q"))), "declare the symbols q"),
    "result from nowhere": (lambda g: g.results.append(STRAY), "result %stray is not defined"),
    "result symbol": (lambda g: g.results.append(sym("q")), "nothing binds the symbol q"),
    "update of no input": (lambda g: g.updates.append((STRAY, STRAY)), "which is no input"),
    "update twice": (lambda g: g.updates.append(g.updates[0]), "%x is updated twice"),
    "update type": (
        lambda g: g.updates.append((_input(g, 1), g.nodes[1].result)), "update of %y: f32"
    ),
}  # fmt: skip


def test_orders_and_groups_that_do_not_fit() -> None:
    b = GraphBuilder("g")
    x, matrices = b.input("x", F32, (4, 3)), b.input("w", F32, (2, 3, 5))
    ends, flags = b.input("ends", I64, (2,)), b.input("flags", BOOL, (4,))
    top = {"largest": True, "sorted": True}
    for op, operands, attrs, message in (
        ("argsort", (x,), {"dim": 2, "descending": True, "stable": True}, "do not fit rank 2"),
        ("argtopk", (x,), {"dim": 1, "k": 4, **top}, "no 4 largest of 3"),
        ("argtopk", (flags,), {"dim": 0, "k": 1, **top}, "not bool"),
        ("searchsorted", (x, ends), {"right": True, "dtype": I64}, "no order of f32 and i64"),
        ("searchsorted", (flags, flags), {"right": True, "dtype": I64}, "no order of bool"),
        ("searchsorted", (matrices, x), {"right": True, "dtype": I64}, "no rows of"),
        ("searchsorted", (x, x), {"right": True, "dtype": F32}, "positions as f32"),
        ("grouped_matmul", (x, x, ends), {}, "needs ranks 2, 3, 1"),
        ("grouped_matmul", (x, matrices, flags), {}, "sizes do not fit"),
        ("grouped_matmul", (x, matrices, b.emit("cast", ends, dtype=F32)), {}, "not f32"),
    ):
        with pytest.raises(TypingError, match=message):
            b.emit(op, *operands, **attrs)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_graphs_are_refused(name: str) -> None:
    graph = base()
    change, message = BROKEN[name]
    change(graph)
    with pytest.raises(VerificationError, match=message):
        verify_graph(graph)


def test_the_message_names_stage_graph_and_node() -> None:
    graph = base()
    graph.nodes[1].attrs["dims"] = (7,)
    with pytest.raises(VerificationError) as caught:
        verify_graph(graph, "fold constants")
    expected = "after fold constants: graph f: in `%1 = reduce_sum(%0) {dims=(7)} : f32[s0]`: dims"
    assert str(caught.value).startswith(expected)
    assert caught.value.stage == "fold constants"


def test_a_symbol_is_known_only_after_it_was_bound() -> None:
    graph = base()
    early = Node("dim_value", (), {"value": sym("s1")})
    early.results = (Value("9", TensorType(I64, ()), early),)
    graph.nodes.append(early)
    verify_graph(graph)
    graph.nodes.insert(0, graph.nodes.pop())
    with pytest.raises(VerificationError, match="nothing binds the symbol s1"):
        verify_graph(graph)


def test_row_major_strides_may_be_written_out() -> None:
    graph = base()
    graph.nodes[0].result.type = TensorType(F32, (S, 4), (4, 1))
    verify_graph(graph)
