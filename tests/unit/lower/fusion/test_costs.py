"""When a value is stored and when its readers compute it again: by bytes and operations."""

from __future__ import annotations

import logging

import pytest

from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, F32, I64
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.fuse import fuse

TARGET = profile("x86-64-v4")
"""Caches of 32 KiB and 512 KiB, 16 lanes."""


def stored(graph: Graph) -> set[str]:
    """Operators of the values that kernels store for others, besides the results."""
    results = {result for result in graph.results if isinstance(result, Value)}
    fusion = fuse(graph, Costs(graph, TARGET), results)
    roots = {value for group in fusion.groups for value in group.roots}
    return {value.node.op for value in roots - results if value.node is not None}


def turned_and_straight(op: str, rows: Dim, columns: int, inputs: int = 1) -> Graph:
    """A value that two kernels read: one in its own order, one in another."""
    b = GraphBuilder("g")
    value = b.input("x0", F32, (rows, columns))
    for number in range(1, inputs):
        value = b.emit("add", value, b.input(f"x{number}", F32, (rows, columns)))
    value = b.emit(op, value)
    turned = b.emit("permute", value, dims=(1, 0))
    b.graph.results = [b.emit("abs", value), b.emit("tanh", turned)]
    return b.graph


@pytest.mark.parametrize(
    ("op", "rows", "inputs", "kept"),
    [
        # Within the caches an exponential is dearer than its bytes, a negation never is.
        ("exp", 64, 1, True),
        ("neg", 64, 1, False),
        ("exp", 4096, 1, True),
        # From memory the bytes are dearer, unless reading what it is made of costs even more.
        ("exp", 1 << 15, 1, False),
        ("exp", 1 << 15, 3, True),
        ("neg", 1 << 15, 3, True),
    ],
)
def test_two_readers(op: str, rows: int, inputs: int, kept: bool) -> None:
    assert stored(turned_and_straight(op, rows, 512, inputs)) == ({op} if kept else set[str]())


@pytest.mark.parametrize(("least", "kept"), [(1, True), (1 << 15, False)])
def test_symbolic_sizes_are_guessed_within_their_range(least: int, kept: bool) -> None:
    rows = sym("s0", least, None)
    assert bool(stored(turned_and_straight("exp", rows, 512))) == kept


@pytest.mark.parametrize(("rows", "kept"), [(2, False), (4096, True)])
def test_what_rows_share_is_repeated_for_a_few(rows: int, kept: bool) -> None:
    # For a few rows a kernel more costs more than computing again does.
    b = GraphBuilder("g")
    wide = b.emit("expand", b.emit("tanh", b.input("x", F32, (640,))), shape=(rows, 640))
    b.graph.results = [b.emit("mul", wide, b.input("y", F32, (rows, 640)))]
    assert bool(stored(b.graph)) == kept


def test_a_scalar_beside_vectors_is_not_stored() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (4096, 1))
    wide = b.emit("expand", b.emit("tanh", x), shape=(4096, 640))
    b.graph.results = [b.emit("mul", wide, b.input("y", F32, (4096, 640)))]
    assert stored(b.graph) == set()


def test_of_a_large_table_only_the_rows_that_are_looked_up_are_computed() -> None:
    b = GraphBuilder("g")
    table = b.emit("exp", b.input("table", BF16, (1 << 15, 512)))
    rows = b.input("rows", I64, (4,))
    b.graph.results = [b.emit("index", table, rows, at=0, dims=(0,))]
    assert stored(b.graph) == set()


def test_code_is_not_written_out_without_end() -> None:
    # Each sum reads the one before at two places: after n of them there would be 2^n.
    b = GraphBuilder("g")
    value = b.input("x", F32, (64,))
    for _ in range(12):
        inside = b.emit("slice", value, dim=0, start=1, end=64, step=1)
        value = b.emit("add", value, b.emit("pad", inside, low=(0,), high=(1,), value=0.0))
    b.graph.results = [value]
    assert 1 <= len(fuse(b.graph, Costs(b.graph, TARGET), {value}).groups) - 1 < 6


def test_what_several_passes_need_is_kept_by_its_cost() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (4, 512))
    dear, cheap = b.emit("exp", x), b.emit("neg", x)
    costs = Costs(b.graph, TARGET)
    assert costs.keeps(dear, 512, 2)
    assert not costs.keeps(dear, 512, 1)
    assert not costs.keeps(cheap, 512, 3)
    assert not costs.keeps(dear, 1 << 24, 2)


def test_the_log_has_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    graph = turned_and_straight("exp", 64, 512)
    with caplog.at_level(logging.DEBUG, "kernelmill.lower"):
        stored(graph)
    (line,) = [record.message for record in caplog.records]
    assert "is stored: 2 kernels read it; ns: recomputed" in line
