"""Where values live: results that are views, layouts, updates, writes in place."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F32, I64
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.driver.aliases import AliasFinder, own_strides
from kernelmill.lower.elements.strided import span
from kernelmill.plan.ir import TensorResult
from tests.compiled import check, graph, lowered

SHAPE = (4, 6)


def result_buffers(made: Graph) -> list[int]:
    """The buffer numbers of a graph's tensor results."""
    results = lowered(made).plan.results
    return [result.buffer for result in results if isinstance(result, TensorResult)]


def kernels(made: Graph) -> int:
    return len(lowered(made).plan.steps)


# ---- views share memory with what they show -------------------------------------------------


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("permute", {"dims": (1, 0)}),
        ("reshape", {"shape": (3, 8)}),
        ("layout", {"strides": (1, 4)}),
    ],
)
def test_a_view_of_a_computed_value_is_returned_without_a_copy(
    op: str, attrs: dict[str, object]
) -> None:
    made = graph(lambda b, x: b.emit(op, b.emit("exp", x), **attrs), (F32, SHAPE))
    assert kernels(made) == 1
    check(made, torch.randn(SHAPE), interpret=True)


def test_heads_are_stored_in_the_order_in_which_they_are_returned() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        heads = b.emit("permute", b.emit("matmul", x, y), dims=(1, 0, 2))
        return b.emit("reshape", heads, shape=(6, 12))

    made = graph(build, (F32, (3, 6, 8)), (F32, (3, 8, 4)))
    assert kernels(made) == 1
    check(made, torch.randn(3, 6, 8), torch.randn(3, 8, 4))


def returned(b: GraphBuilder, h: Value, which: str) -> list[Value]:
    return [
        h if letter == "h" else b.emit("permute", h, dims=(1, 0)) if letter == "p"
        else b.emit("reshape", h, shape=(24,)) if letter == "r"
        else b.emit("layout", h, strides=(1, 4))
        for letter in which
    ]  # fmt: skip


@pytest.mark.parametrize(
    "which", ["hp", "ph", "hr", "rh", "pr", "rp", "pp", "hh", "hl", "lh", "lphr"]
)
def test_a_value_and_views_of_it_have_memory_of_their_own(which: str) -> None:
    made = graph(lambda b, x: returned(b, b.emit("exp", x), which), (F32, SHAPE))
    check(made, torch.randn(SHAPE), interpret=True)


def test_a_value_returned_twice_is_stored_once() -> None:
    made = graph(lambda b, x: returned(b, b.emit("exp", x), "hh"), (F32, SHAPE))
    first, second = result_buffers(made)
    assert first == second


def test_a_returned_value_keeps_its_layout_though_it_is_read_in_another_order() -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        h = b.emit("exp", x)
        flat = b.emit("reshape", b.emit("permute", h, dims=(1, 0)), shape=(24,))
        return [h, b.emit("tanh", flat)]

    check(graph(build, (F32, SHAPE)), torch.randn(SHAPE), interpret=True)


def test_arguments_and_views_of_them_are_results() -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        return [x, *returned(b, x, "hprl"), b.emit("slice", x, dim=0, start=1, end=3, step=1)]

    check(graph(build, (F32, SHAPE)), torch.randn(SHAPE), interpret=True)


def test_results_without_computation() -> None:
    def build(b: GraphBuilder) -> list[Value]:
        return [
            b.emit("full", value=2.5, dtype=BF16, shape=(3, 5)),
            b.emit("iota", dim=1, shape=(2, 7)),
            b.emit("permute", b.emit("iota", dim=0, shape=(2, 7)), dims=(1, 0)),
        ]

    check(graph(build), interpret=True)


# ---- layouts --------------------------------------------------------------------------------

CHANNELS_LAST = (3 * 4 * 5, 1, 3 * 5, 3)


def test_channels_last_in_and_out() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (2, 3, 4, 5), CHANNELS_LAST)
    b.graph.results = [
        b.emit("layout", b.emit("exp", x), strides=CHANNELS_LAST),
        b.emit("reduce_sum", x, dims=(2, 3)),
        b.emit("tanh", x),
    ]
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(b.graph, image, interpret=True)


def test_a_result_with_gaps() -> None:
    made = graph(lambda b, x: b.emit("layout", b.emit("exp", x), strides=(20, 3)), (F32, (4, 6)))
    check(made, torch.randn(4, 6), interpret=True)


# ---- updates --------------------------------------------------------------------------------


def updating(updates: Sequence[tuple[int, str]], *, results: str = "") -> Graph:
    """Updates of three inputs: by an input ("0"), by exp of one ("e0") or its transpose ("t0")."""
    b = GraphBuilder("g")
    inputs = [b.input(f"x{number}", F32, (5, 5)) for number in range(3)]

    def value(text: str) -> Value:
        x = inputs[int(text[-1])]
        if text[0] == "e":
            return b.emit("exp", x)
        return b.emit("permute", x, dims=(1, 0)) if text[0] == "t" else x

    b.graph.updates = [(inputs[number], value(text)) for number, text in updates]
    b.graph.results = [value(text) for text in results.split()]
    return b.graph


@pytest.mark.parametrize(
    "made",
    [
        updating([(0, "e0")]),
        updating([(0, "e1"), (1, "e0")], results="e0 e1"),
        updating([(0, "1"), (1, "0")], results="e0"),
        updating([(0, "1"), (1, "2"), (2, "0")]),
        updating([(0, "t0")], results="0 e0 t0"),
        updating([(0, "t1"), (1, "t0"), (2, "e0")]),
        updating([(0, "0")], results="e0"),
    ],
    ids=["own", "crossed", "swapped", "turned round", "transposed", "all", "itself"],
)
def test_updates_use_what_arguments_held_before(made: Graph) -> None:
    check(made, *(torch.randn(5, 5) for _ in range(3)), interpret=True)


def test_lowering_leaves_the_graph_as_it_was() -> None:
    made = updating([(0, "1")])
    lowered(made)
    assert made.nodes == []


def test_an_argument_with_gaps_is_updated_between_them() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (4, 3), (8, 2))
    b.graph.updates = [(x, b.emit("neg", x))]
    room = torch.randn(32)
    check(b.graph, room.as_strided((4, 3), (8, 2)), interpret=True)


def writing(*, inplace: bool) -> Graph:
    b = GraphBuilder("g")
    cache, new = b.input("cache", F32, (6, 4)), b.input("new", F32, (2, 4))
    at = b.input("at", I64, (2,))
    attrs: dict[str, object] = {"inplace": True} if inplace else {}
    written = b.emit("index_put", cache, new, at, dims=(0,), at=0, mode="set", **attrs)
    b.graph.updates = [(cache, written)]
    b.graph.results = [b.emit("reduce_sum", written, dims=(0,))]
    return b.graph


@pytest.mark.parametrize("inplace", [True, False])
def test_a_write_into_part_of_an_argument(inplace: bool) -> None:
    made = writing(inplace=inplace)
    # Otherwise the whole is copied before and after the write.
    assert kernels(made) == (2 if inplace else 4)
    check(made, torch.randn(6, 4), torch.randn(2, 4), torch.tensor([4, 1]), interpret=True)


# ---- the parts ------------------------------------------------------------------------------


def test_span_reaches_from_the_first_element_to_the_last() -> None:
    s = sym("s0")
    assert span((), ()) == 1
    assert span((4, 6), (6, 1)) == 24
    assert span((4, 6), (0, 2)) == 11
    assert span((4, 0), (6, 1)) == 0
    assert span((s, 3), (3, 1)) == s * 3


def test_a_view_that_leaves_elements_out_is_no_alias() -> None:
    b = GraphBuilder("g")
    h = b.emit("exp", b.input("x", F32, SHAPE))
    finder = AliasFinder()
    part = b.emit("slice", h, dim=0, start=0, end=2, step=1)
    assert finder.alias(part) is part
    turned = b.emit("permute", h, dims=(1, 0))
    assert finder.alias(turned) is h
    assert finder.alias(b.emit("reshape", h, shape=(24,))).node is not h.node


def test_strides_of_a_value_in_the_memory_of_its_view() -> None:
    b = GraphBuilder("g")
    h = b.emit("exp", b.input("x", F32, (2, 3, 4)))
    turned = b.emit("permute", h, dims=(2, 0, 1))
    assert own_strides(h, turned) == (3, 1, 6)
    assert own_strides(h, b.emit("reshape", turned, shape=(8, 3))) == (3, 1, 6)
    assert own_strides(h, b.emit("layout", h, strides=(1, 8, 2))) == (1, 8, 2)


def test_a_reshape_across_a_permutation_has_no_strides() -> None:
    b = GraphBuilder("g")
    h = b.emit("exp", b.input("x", F32, (4, 6)))
    crossed = b.emit("permute", b.emit("reshape", h, shape=(3, 8)), dims=(1, 0))
    assert own_strides(h, crossed) is None


def test_a_buffer_has_the_shape_of_the_view_that_is_returned() -> None:
    made = graph(lambda b, x: b.emit("permute", b.emit("exp", x), dims=(1, 0)), (F32, SHAPE))
    plan = lowered(made).plan
    (number,) = result_buffers(made)
    assert (plan.buffers[number].shape, plan.buffers[number].strides) == ((6, 4), (4, 1))
