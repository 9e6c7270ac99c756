"""Random norms of views: what takes long to compute is looked at through views by several passes of
reductions, as norms over groups and softmaxes are, and by what follows them. The numbers are whole,
so that every order of sums gives eager's results to the last bit."""

from __future__ import annotations

from math import prod

import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch import Tensor

from kernelmill.core.dtype import BF16, F16, F32
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Input, Value
from kernelmill.graph.text import print_graph
from tests.compiled import lowered, program, whole

GRAPHS = settings(settings.get_profile("graphs"), suppress_health_check=list(HealthCheck))
FACTORS = st.sampled_from((1, 2, 2, 3, 4, 5, 8, 16, 17))
ELEMENTS = 3000


class _Norms:
    """One value, views of it, and passes over their rows."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.b = draw, GraphBuilder("norms")

    def graph(self) -> Graph:
        shape = self.draw(st.lists(FACTORS, min_size=1, max_size=4).filter(_is_small))
        value = self.costly(self.b.input("x", F32, shape))
        seen = value
        for _ in range(self.draw(st.integers(1, 3))):
            seen = self.view(seen)
        results = [self.norm(seen)]
        if self.draw(st.booleans()):
            results.append(self.norm(self.view(seen)))
        if self.draw(st.booleans()):
            results.append(self.b.emit("neg", value))
        self.b.graph.results = results
        return self.b.graph

    def costly(self, value: Value) -> Value:
        """What is sooner kept than computed again, and whole still."""
        for _ in range(self.draw(st.integers(2, 4))):
            half = self.draw(st.sampled_from((BF16, F16)))
            value = self.b.emit("cast", self.b.emit("cast", value, dtype=half), dtype=F32)
            value = self.b.emit(self.draw(st.sampled_from(("floor", "round", "neg"))), value)
        return value

    def view(self, value: Value) -> Value:
        kind = self.draw(
            st.sampled_from(("split", "join", "join", "permute", "slice", "flip", "expand"))
        )
        shape = list(value.shape)
        at = self.draw(st.integers(0, len(shape) - 1))
        size = shape[at]
        assert isinstance(size, int)
        if kind == "split":
            factor = self.draw(st.sampled_from([f for f in range(1, size + 1) if size % f == 0]))
            return self.b.emit(
                "reshape", value, shape=(*shape[:at], size // factor, factor, *shape[at + 1 :])
            )
        if kind == "join":
            rest = (size * shape[at + 1], *shape[at + 2 :]) if at + 1 < len(shape) else (size, 1)
            return self.b.emit("reshape", value, shape=(*shape[:at], *rest))
        if kind == "permute":
            order = self.draw(st.permutations(range(len(shape))))
            return self.b.emit("permute", value, dims=tuple(order))
        if kind == "slice":
            start = self.draw(st.integers(0, size - 1))
            step = self.draw(st.sampled_from((1, 1, 2, 3)))
            end = self.draw(st.integers(start + 1, size))
            return self.b.emit("slice", value, dim=at, start=start, end=end, step=step)
        if kind == "flip":
            return self.b.emit("flip", value, dims=(at,))
        times = self.draw(st.sampled_from((2, 3)))
        wide = (times, *shape)
        return self.b.emit("expand", value, shape=wide) if _is_small(wide) else value

    def norm(self, value: Value) -> Value:
        """Passes over rows, each from the one before, and what they make of each element."""
        rank = len(value.shape)
        dims = self.draw(st.sets(st.integers(0, rank - 1), min_size=1))
        found = value
        for fold in self.draw(
            st.lists(st.sampled_from(("max", "sum", "min")), min_size=1, max_size=3)
        ):
            operand = found
            if fold == "sum":  # of zeros and ones
                zero = self.b.emit("full", dtype=F32, shape=found.shape, value=0.0)
                positive = self.b.emit("gt", found, zero)
                operand = self.b.emit("cast", positive, dtype=F32)
            folded = self.b.emit(f"reduce_{fold}", operand, dims=tuple(sorted(dims)))
            kept = [1 if d in dims else size for d, size in enumerate(value.shape)]
            folded = self.b.emit("reshape", folded, shape=tuple(kept))
            folded = self.b.emit("expand", folded, shape=value.shape)
            found = self.b.emit("sub", found, folded)
        if self.draw(st.booleans()):
            return self.view(self.b.emit("add", found, value))
        return found


def _is_small(shape: object) -> bool:
    assert isinstance(shape, (list, tuple))
    return prod(shape) <= ELEMENTS


@st.composite
def norms(draw: st.DrawFn) -> Graph:
    """A graph of one argument."""
    return _Norms(draw).graph()


@GRAPHS
@given(norms(), st.integers(0, 2**20))
def test_passes_over_views_of_whole_numbers_are_exact(graph: Graph, seed: int) -> None:
    note(print_graph(graph))
    torch.manual_seed(seed)
    (entry,) = (entry for entry in graph.inputs if isinstance(entry, Input))
    x = whole(F32, *(int(str(size)) for size in entry.value.shape))
    run = program(lowered(graph), host())
    for expected, found in zip(run_graph(graph, [x]), run(x), strict=True):
        assert isinstance(expected, Tensor) and isinstance(found, Tensor)
        assert torch.equal(found, expected)
