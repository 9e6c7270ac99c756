"""Views as index arithmetic, held against the eager view of a tensor that counts its elements."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
import torch

from kernelmill.core.dim import Dim, evaluate, sym, symbols
from kernelmill.core.dtype import I64
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.elements.axes import fresh_axes
from kernelmill.lower.elements.views import (
    Index,
    ViewSource,
    fill,
    ravel,
    reshape_index,
    sources,
    unravel,
)

FILL = -7
WINDOW = {"size": (3,), "stride": (2,), "dilation": (2,), "low": (1,), "high": (3,), "value": FILL}

CASES: list[tuple[str, tuple[Dim, ...], dict[str, object]]] = [
    ("expand", (3, 1, 2), {"shape": (4, 3, 5, 2)}),
    ("expand", (), {"shape": (2, 3)}),
    ("permute", (2, 3, 4), {"dims": (2, 0, 1)}),
    ("permute", (), {"dims": ()}),
    ("reshape", (4, 3, 2), {"shape": (2, 12)}),
    ("reshape", (4, 6), {"shape": (2, 2, 1, 3, 2)}),
    ("reshape", (6, 4), {"shape": (4, 6)}),
    ("reshape", (1, 1), {"shape": ()}),
    ("slice", (7, 3), {"dim": 0, "start": 1, "end": 6, "step": 2}),
    ("flip", (3, 4), {"dims": (0, 1)}),
    ("flip", (3, 4), {"dims": ()}),
    ("pad", (3, 2), {"low": (1, 0), "high": (2, 0), "value": FILL}),
    ("as_strided", (3, 4), {"shape": (3, 3), "strides": (1, 4), "offset": 1}),
    ("as_strided", (3, 4), {"shape": (2, 2, 2), "strides": (4, 0, 3), "offset": 2}),
    ("layout", (3, 4), {"strides": (1, 3)}),
    ("window", (2, 7), {"dims": (1,), **WINDOW}),
]


def view(op: str, shape: tuple[Dim, ...], attrs: Mapping[str, object], count: int = 1) -> Graph:
    """A graph that returns the view of `count` inputs of this shape."""
    b = GraphBuilder("view")
    operands = [b.input(f"x{number}", I64, shape) for number in range(count)]
    b.graph.results.append(b.emit(op, *operands, **attrs))  # type: ignore[arg-type]
    return b.graph


def check(graph: Graph, **sizes: int) -> None:
    """Every element comes from where eager takes it from.

    The sources are asked for once, with a symbol for each dim, as the loops of a kernel do.
    """
    (node,) = graph.nodes
    tensors: dict[Value, torch.Tensor] = {}
    total = 0
    for entry in graph.tensor_inputs():
        shape = torch.Size(evaluate(size, sizes) for size in entry.value.shape)
        tensors[entry.value] = torch.arange(total, total + shape.numel()).reshape(shape)
        total += shape.numel()
    (expected,) = run_graph(graph, list(tensors.values()))
    assert isinstance(expected, torch.Tensor)
    axes, at = fresh_axes(node.result.shape, "d", {})
    found = sources(node, at)
    longer = [d for d, size in enumerate(node.result.shape) if size != 1]
    for index in itertools.product(*map(range, expected.shape)):
        positions = (index[d] for d in longer)
        values = {**sizes, **dict(zip((axis.name for axis in axes), positions, strict=True))}
        source = shown(found, values)
        if source is None:
            assert fill(node) == expected[index].item(), index
            continue
        where = tuple(evaluate(position, values) for position in source.index)
        operand = tensors[source.operand]
        assert all(0 <= i < size for i, size in zip(where, operand.shape, strict=True)), index
        assert operand[where] == expected[index], index


def shown(found: tuple[ViewSource, ...], values: Mapping[str, int]) -> ViewSource | None:
    """The first source whose conditions hold."""
    for source in found:
        if all(evaluate(condition, values) >= 0 for condition in source.conditions):
            return source
    return None


@pytest.mark.parametrize(("op", "shape", "attrs"), CASES)
def test_elements_come_from_where_eager_takes_them(
    op: str, shape: tuple[Dim, ...], attrs: dict[str, object]
) -> None:
    check(view(op, shape, attrs))


@pytest.mark.parametrize("dim", [0, 1])
def test_pieces_of_a_concatenation_are_told_apart(dim: int) -> None:
    check(view("concat", (2, 3), {"dim": dim}, count=3))


def test_an_empty_piece_of_a_concatenation_is_never_a_source() -> None:
    b = GraphBuilder("view")
    x, nothing = b.input("x", I64, (3, 2)), b.input("nothing", I64, (0, 2))
    joined = b.emit("concat", nothing, x, nothing, dim=0)
    b.graph.results.append(joined)
    assert joined.node is not None
    assert [s.operand for s in sources(joined.node, fresh_axes((3, 2), "d", {})[1])] == [x]
    check(b.graph)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_symbolic_sizes(n: int) -> None:
    s = sym("s0", 1, 9)
    check(view("reshape", (s, 4, 3), {"shape": (s * 4, 3)}), s0=n)
    check(view("reshape", (s * 4, 3), {"shape": (2, s * 2, 3)}), s0=n)
    check(view("reshape", (s, 6), {"shape": (6, s)}), s0=n)
    check(view("flip", (s, 2), {"dims": (0,)}), s0=n)
    check(view("slice", (s + 2, 2), {"dim": 0, "start": 1, "end": s + 1, "step": 2}), s0=n)
    check(view("pad", (s,), {"low": (s,), "high": (1,), "value": FILL}), s0=n)
    check(view("concat", (s, 2), {"dim": 0}, count=2), s0=n)
    check(view("expand", (s, 1), {"shape": (3, s, s)}), s0=n)
    check(view("window", (2, s + 5), {"dims": (1,), **WINDOW}), s0=n)


def test_conditions_that_always_hold_are_left_out() -> None:
    whole = view("pad", (3, 2), {"low": (1, 0), "high": (0, 0), "value": FILL}).nodes[0]
    (source,) = sources(whole, fresh_axes((4, 2), "d", {})[1])
    assert len(source.conditions) == 1
    (inside,) = sources(whole, (2, 1))
    assert inside.index == (1, 1)
    assert inside.conditions == ()


# ---- reshapes -------------------------------------------------------------------------------


def axes(*shape: Dim) -> Index:
    return fresh_axes(shape, "d", {})[1]


def test_ravel_and_unravel_are_inverse() -> None:
    for number in range(24):
        index = unravel(number, (2, 3, 4))
        assert ravel(index, (2, 3, 4)) == number
    assert unravel(0, ()) == ()
    assert ravel((), ()) == 0


@pytest.mark.parametrize("other", [(24,), (4, 6), (2, 2, 6), (8, 3), (1, 24, 1)])
def test_a_reshape_forth_and_back_is_the_same_index(other: tuple[int, ...]) -> None:
    index = axes(2, 3, 4)
    there = reshape_index(index, (2, 3, 4), other)
    assert reshape_index(there, other, (2, 3, 4)) == index


def test_dims_that_stay_are_not_divided() -> None:
    s, t = sym("s0"), sym("s1")
    index = axes(s, 4, t, 3)
    reshaped = reshape_index(index, (s, 4, t, 3), (s, 2, 2, t * 3))
    assert reshaped[0] == index[0]
    assert set(symbols(reshaped[3])) == {*symbols(index[2]), *symbols(index[3]), "s1"} - {"s1"}


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0, 2), (sym("s0"), 0)])
def test_without_elements_an_index_is_zeros(shape: tuple[Dim, ...]) -> None:
    assert unravel(0, shape) == (0,) * len(shape)
    assert reshape_index(axes(*shape), shape, (0, 5)) == (0, 0)
