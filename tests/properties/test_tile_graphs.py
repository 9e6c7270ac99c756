"""Random graphs of products that are lowered for a tile unit: bf16, bytes and f32 by pieces. The
numbers are whole, so that every order of sums gives eager's results to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch import Tensor

from kernelmill.core.dim import Dim, evaluate, sym
from kernelmill.core.dtype import BF16, F32, I8, I32, DType, InputRole
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Input, Value
from kernelmill.graph.text import print_graph
from tests.compiled import lowered, program, whole
from tests.unit.lower.for_tiles import ALWAYS, texts

GRAPHS = settings(settings.get_profile("graphs"), suppress_health_check=list(HealthCheck))
ROWS = st.sampled_from((1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 70))
DEPTH = st.sampled_from((1, 2, 3, 31, 32, 33, 64, 65, 127, 130))
SUMS = {BF16: (BF16, F32), F32: (F32,), I8: (I32, I8)}
"""What products of these are computed to."""


class _Products:
    """A chain of products; operands are arguments or constants, of any memory order."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.b = draw, GraphBuilder("products")
        self.symbolic = draw(st.booleans())
        self.batch = draw(st.sampled_from(((), (), (2,), (3, 2))))

    def graph(self) -> Graph:
        dtype = self.draw(st.sampled_from((BF16, BF16, I8, I8, F32)))
        rows: Dim = sym("rows", 0, 70) if self.symbolic else self.draw(ROWS)
        value = self.operand("x", dtype, (*self.batch, rows, self.draw(DEPTH)))
        for number in range(self.draw(st.integers(1, 3))):
            value = self.product(f"w{number}", value)
        self.b.graph.results = [value]
        return self.b.graph

    def operand(self, name: str, dtype: DType, shape: Sequence[Dim]) -> Value:
        """Of this shape: plain, transposed, or a part of something larger."""
        kind = self.draw(st.sampled_from(("plain", "turned", "part")))
        constant = name != "x" and self.draw(st.booleans())
        role = InputRole.PARAM if constant else InputRole.USER
        rank = len(shape)
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        if kind == "turned":
            value = self.b.input(name, dtype, [shape[axis] for axis in swapped], role=role)
            return self.b.emit("permute", value, dims=swapped)
        if kind == "part":
            first = self.draw(st.integers(0, 5))
            value = self.b.input(name, dtype, (*shape[:-1], shape[-1] + first + 1), role=role)
            return self.b.emit(
                "slice", value, dim=rank - 1, start=first, end=shape[-1] + first, step=1
            )
        return self.b.input(name, dtype, shape, role=role)

    def product(self, name: str, left: Value) -> Value:
        left = self.small(left)
        alone = self.draw(st.booleans())
        shape = (*(() if alone else self.batch), left.shape[-1], self.draw(ROWS))
        right = self.operand(name, left.dtype, shape)
        if alone and self.batch:
            right = self.b.emit("expand", right, shape=(*self.batch, *shape))
        made = self.b.emit(
            "matmul", left, right, dtype=self.draw(st.sampled_from(SUMS[left.dtype]))
        )
        return self.epilogue(name, made)

    def epilogue(self, name: str, value: Value) -> Value:
        kind = self.draw(st.sampled_from(("none", "neg", "bias", "clamp")))
        if kind == "neg":
            return self.b.emit("neg", value)
        if kind == "bias":
            bias = self.b.input(f"b{name}", value.dtype, value.shape[-1:], role=InputRole.PARAM)
            return self.b.emit("add", value, self.b.emit("expand", bias, shape=value.shape))
        return self.small(value) if kind == "clamp" else value

    def small(self, value: Value) -> Value:
        """From -4 to 4, in a type that products are made of."""
        for name, number in (("minimum", 4), ("maximum", -4)):
            limit = self.b.emit(
                "full", dtype=value.dtype, shape=value.shape,
                value=float(number) if value.dtype.is_float else number,
            )  # fmt: skip
            value = self.b.emit(name, value, limit)
        return self.b.emit("cast", value, dtype=I8) if value.dtype == I32 else value


@st.composite
def products(draw: st.DrawFn) -> Graph:
    """A graph, valid for every number of rows from 0 to 70 if that is a symbol."""
    return _Products(draw).graph()


def arguments(graph: Graph, rows: int) -> list[Tensor]:
    entries = [entry for entry in graph.inputs if isinstance(entry, Input)]
    shapes = [[evaluate(dim, {"rows": rows}) for dim in entry.value.shape] for entry in entries]
    return [whole(entry.value.dtype, *shape) for entry, shape in zip(entries, shapes, strict=True)]


def test_products_of_whole_numbers_are_exact() -> None:
    on_tiles: list[bool] = []

    @GRAPHS
    @given(products(), st.integers(0, 2**20), st.sampled_from((0, 1, 2, 17, 33, 64, 70)))
    def check(graph: Graph, seed: int, rows: int) -> None:
        note(print_graph(graph))
        torch.manual_seed(seed)
        made = lowered(graph, ALWAYS)
        on_tiles.append("tile_dot" in texts(made))
        run = program(made, host())
        for each in (rows, 40):
            inputs = arguments(graph, each)
            (expected,), (found,) = run_graph(graph, list(inputs)), run(*inputs)
            assert isinstance(expected, Tensor) and isinstance(found, Tensor)
            assert found.dtype == expected.dtype and torch.equal(found, expected)

    check()
    assert sum(on_tiles) > len(on_tiles) // 2
