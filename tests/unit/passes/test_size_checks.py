"""Assertions that are known to hold, or are about sizes alone."""

from __future__ import annotations

from typing import Any

import pytest

from kernelmill.core.dim import Dim, Sym, of_atom
from kernelmill.core.dtype import BOOL, F32, I64
from kernelmill.graph.builder import GraphBuilder, at_sizes
from kernelmill.graph.ir import Graph, Value
from kernelmill.passes import run_pipeline
from kernelmill.passes.constants import FoldConstants
from kernelmill.passes.dce import DropSizeChecks


def asserting(about_values: bool) -> Graph:
    """Asserts that x has at least 3 rows, or that its first element is true."""
    n: Dim = of_atom(Sym("n", 0))
    b = GraphBuilder("g")
    x = b.input("x", BOOL if about_values else F32, (n,))
    condition: Value
    if about_values:
        condition = b.emit("reduce_min", x, dims=(0,))
    else:
        size = b.emit("dim_value", value=n)
        condition = b.emit("ge", size, b.emit("full", shape=(), dtype=I64, value=3))
    call: dict[str, Any] = {"args": (("tensor", 0), "few"), "kwargs": (), "binds": ()}
    b.emit_many("aten", condition, target="aten._assert_async.msg", results=(), reason="", **call)
    b.graph.results = [x]
    return b.graph


def assertions(graph: Graph) -> int:
    return sum(node.op == "aten" for node in graph.nodes)


def test_what_folding_finds_true_is_dropped() -> None:
    assert assertions(run_pipeline(at_sizes(asserting(False), {"n": 3}))) == 0
    assert assertions(run_pipeline(at_sizes(asserting(False), {"n": 2}))) == 1
    assert assertions(run_pipeline(asserting(False))) == 1


@pytest.mark.parametrize(
    ("op", "number", "decided"),
    [
        ("ge", 0, True), ("ge", 2, True), ("ge", 3, None), ("gt", 1, True), ("gt", 2, None),
        ("lt", 2, False), ("lt", 3, None), ("lt", 10, True), ("le", 9, True), ("le", 1, False),
    ],
)  # fmt: skip
def test_ranges_decide_comparisons_of_sizes(op: str, number: int, decided: bool | None) -> None:
    b = GraphBuilder("g")
    n: Dim = of_atom(Sym("n", 2, 9))
    b.input("x", F32, (n,))
    right = b.emit("full", shape=(), dtype=I64, value=number)
    b.graph.results = [b.emit(op, b.emit("dim_value", value=n), right)]
    (result,) = FoldConstants().apply(b.graph).results
    assert isinstance(result, Value) and result.node is not None
    if decided is None:
        assert result.node.op == op
    else:
        assert result.node.attrs["value"] is decided


def test_the_range_of_a_size_that_a_node_finds_decides_nothing() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (4,))
    n: Dim = of_atom(Sym("u", 0, 4))
    b.graph.symbols["u"] = Sym("u", 0, 4)
    call: dict[str, Any] = {"args": (("tensor", 0),), "kwargs": (), "reason": "sizes"}
    kind = ((I64, (n, 1), None),)
    b.emit_many(
        "aten", x, target="aten.nonzero.default", results=kind, binds=(("u", 0, 0),), **call
    )
    zero = b.emit("full", shape=(), dtype=I64, value=0)
    compared = b.emit("ge", b.emit("dim_value", value=n), zero)
    b.graph.results = [compared]
    assert FoldConstants().apply(b.graph).results == [compared]


def test_only_those_about_sizes_are_dropped_on_demand() -> None:
    assert not DropSizeChecks().apply(asserting(False)).nodes
    kept = asserting(True)
    assert DropSizeChecks().apply(kept) is kept
