"""Random graphs: where padding is accepted, the padded program computes the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernelmill.core.dim import symbols
from kernelmill.core.errors import PaddingError
from kernelmill.graph.ir import DimInput, Graph
from kernelmill.graph.text import print_graph
from kernelmill.passes.padding.analysis import padding_of
from tests.padded import padded_difference
from tests.strategies import arguments, graphs

LARGEST = {"s0": 7, "s1": 5}
"""The upper ends of the ranges that `graphs` gives its symbols."""


def _sizes(graph: Graph, values: list[Any]) -> dict[str, int]:
    pairs = zip(graph.inputs, values, strict=True)
    return {entry.symbol.name: value for entry, value in pairs if isinstance(entry, DimInput)}


def test_an_accepted_graph_computes_the_same_when_padded() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=1200, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(graphs(max_nodes=10, symbolic=True), st.integers(0, 100), st.data())
    def check(graph: Graph, seed: int, data: st.DataObject) -> None:
        shapes = [entry.value.shape for entry in graph.tensor_inputs()]
        used = sorted({name for shape in shapes for size in shape for name in symbols(size)})
        assume(used)
        padded = data.draw(st.sets(st.sampled_from(used), min_size=1))
        values = arguments(graph, seed)
        sizes = _sizes(graph, values)
        gear = {
            name: data.draw(st.integers(size, LARGEST[name])) if name in padded else size
            for name, size in sizes.items()
        }
        try:
            padding = padding_of(graph, frozenset(padded), frozenset())
        except PaddingError:
            seen["refused"] += 1
            return
        seen["accepted"] += 1
        wrong = padded_difference(graph, padding, values, sizes, gear)
        assert wrong is None, f"{wrong}, {sizes} to {gear}\n{print_graph(graph)}"

    check()
    assert seen["accepted"] > 250, seen
