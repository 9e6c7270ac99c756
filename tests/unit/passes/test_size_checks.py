"""Assertions that are known to hold, or are about sizes alone."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dim import Dim, Sym, of_atom
from kernelmill.core.dtype import BOOL, F32, I64
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.graph.sizes import at_sizes
from kernelmill.passes import run_pipeline
from kernelmill.passes.size_checks import DropSizeChecks


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


def test_only_those_about_sizes_are_dropped_on_demand() -> None:
    assert not DropSizeChecks().apply(asserting(False)).nodes
    kept = asserting(True)
    assert DropSizeChecks().apply(kept) is kept
