"""Random graphs: compiled code computes what the interpreter computes with eager operators."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from kernelmill.compiler.pipeline import compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, OpKind
from kernelmill.graph.ops import OPS
from kernelmill.graph.text import print_graph
from tests.differential.opinfo import Flat, compile_flat
from tests.strategies import arguments, graphs
from tests.tolerances import mismatch

GRAPHS = settings(settings.get_profile("graphs"), suppress_health_check=list(HealthCheck))
"""With --hypothesis-profile=long other graphs each time, and many of them."""

CALLS = 2
LOOKS_AT_DATA = {OpKind.GATHER, OpKind.SCATTER}
"""Kinds of operators whose indices the interpreter checks, so that it cannot be traced."""


def compare(actual: list[Any], expected: list[Any]) -> None:
    """Fails when results differ."""
    assert len(actual) == len(expected)
    for number, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(theirs, torch.Tensor):
            wrong = mismatch(mine, theirs)
            assert wrong is None, f"result {number}: {wrong}"
        else:
            assert mine == theirs, f"result {number}: {mine}"


def check(graph: Graph, seed: int, specials: bool = False, mode: str = "max-autotune") -> None:
    """Compiles, and calls with different arguments; updated inputs are compared too."""
    note(print_graph(graph))
    config = CompilerConfig()
    config.mode = mode
    program = compile_graph(graph, config).program
    for call in range(CALLS):
        ours = arguments(graph, seed + call, specials)
        theirs = arguments(graph, seed + call, specials)
        expected = run_graph(graph, theirs)
        compare(program(*ours), expected)
        compare(ours, theirs)


@GRAPHS
@given(graphs(), st.integers(0, 2**20))
def test_static_graphs(graph: Graph, seed: int) -> None:
    check(graph, seed)


@GRAPHS
@given(graphs(), st.integers(0, 2**20))
def test_special_values(graph: Graph, seed: int) -> None:
    check(graph, seed, specials=True)


@GRAPHS
@given(graphs(symbolic=True), st.integers(0, 2**20))
def test_symbolic_graphs(graph: Graph, seed: int) -> None:
    check(graph, seed)


@GRAPHS
@given(st.one_of(graphs(), graphs(symbolic=True)), st.integers(0, 2**20))
def test_operators_one_by_one(graph: Graph, seed: int) -> None:
    check(graph, seed, mode="reduce-overhead")


@GRAPHS
@given(graphs(max_nodes=20), st.integers(0, 2**20))
def test_long_graphs(graph: Graph, seed: int) -> None:
    check(graph, seed)


@GRAPHS
@given(graphs(), st.integers(0, 2**20))
def test_through_the_frontend(graph: Graph, seed: int) -> None:
    """The interpreter itself is traced by AOTAutograd, imported, compiled and compared."""
    note(print_graph(graph))
    assume(not graph.updates and not any(LOOKS_AT_DATA & {OPS[n.op].kind} for n in graph.nodes))

    def run(*tensors: Any) -> list[Any]:
        return [result for result in run_graph(graph, tensors) if result is not None]

    inputs = arguments(graph, seed)
    compiled = compile_flat(Flat(run, (tuple(inputs), {})), "kernelmill")
    compare(list(compiled(*inputs)), run(*inputs))
