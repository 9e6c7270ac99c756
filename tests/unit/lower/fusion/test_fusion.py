"""What shares a kernel with what, and that the results are right all the same."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dtype import BF16, F32, I64, InputRole, to_torch
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.fuse import fuse
from tests.compiled import check


def kernels(graph: Graph, *, separate: bool = False) -> list[set[str]]:
    """The computing operators of each kernel, in the order in which they run."""
    forced = [result for result in graph.results if isinstance(result, Value) and result.node]
    groups = fuse(graph, Costs(graph, profile("x86-64-v4")), forced, separate).groups
    views = {"reshape", "expand", "permute", "slice", "concat", "full", "pad", "layout"}
    return [{node.op for node in group.nodes} - views for group in groups]


def right(graph: Graph) -> Lowered:
    """The graph computes what eager does, for random inputs."""
    inputs = []
    for entry in graph.tensor_inputs():
        shape = [size for size in entry.value.shape if isinstance(size, int)]
        if entry.value.dtype == I64:
            inputs.append(torch.arange(torch.Size(shape).numel()).reshape(shape))
        else:
            inputs.append(torch.randn(shape, dtype=to_torch(entry.value.dtype)))
    return check(graph, *inputs)


def row(b: GraphBuilder, reduced: Value, like: Value) -> Value:
    """A reduction over the last dim, expanded again."""
    kept = b.emit("reshape", reduced, shape=(*like.shape[:-1], 1))
    return b.emit("expand", kept, shape=like.shape)


def softmax(b: GraphBuilder, x: Value) -> Value:
    last = len(x.shape) - 1
    largest = row(b, b.emit("reduce_max", x, dims=(last,)), x)
    e = b.emit("exp", b.emit("sub", x, largest))
    return b.emit("div", e, row(b, b.emit("reduce_sum", e, dims=(last,)), x))


def layer_norm(b: GraphBuilder, x: Value) -> Value:
    last = len(x.shape) - 1
    size = b.emit("full", value=float(x.shape[-1]), dtype=F32, shape=x.shape[:-1])  # type: ignore[arg-type]
    mean = b.emit("div", b.emit("reduce_sum", x, dims=(last,)), size)
    centred = b.emit("sub", x, row(b, mean, x))
    squares = b.emit("reduce_sum", b.emit("mul", centred, centred), dims=(last,))
    small = b.emit("full", value=1e-5, dtype=F32, shape=x.shape[:-1])
    scale = b.emit("rsqrt", b.emit("add", b.emit("div", squares, size), small))
    return b.emit("mul", centred, row(b, scale, x))


# ---- maps and reductions --------------------------------------------------------------------


def test_softmax_is_one_kernel() -> None:
    b = GraphBuilder("g")
    b.graph.results = [softmax(b, b.input("x", F32, (6, 20)))]
    assert kernels(b.graph) == [{"reduce_max", "sub", "exp", "reduce_sum", "div"}]
    right(b.graph)


def test_layer_norm_of_a_sum_with_its_weights_is_one_kernel() -> None:
    b = GraphBuilder("g")
    x, residual = b.input("x", F32, (3, 5, 24)), b.input("r", F32, (3, 5, 24))
    weight = b.emit("expand", b.input("w", F32, (24,), role=InputRole.PARAM), shape=(3, 5, 24))
    both = b.emit("add", x, residual)
    b.graph.results = [b.emit("mul", layer_norm(b, both), weight), both]
    assert len(kernels(b.graph)) == 1
    right(b.graph)


def test_a_reduction_takes_what_it_reads_and_what_reads_it_element_by_element() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (7, 9)), b.input("y", F32, (7,))
    total = b.emit("reduce_sum", b.emit("exp", x), dims=(1,))
    b.graph.results = [b.emit("tanh", b.emit("add", total, y))]
    assert kernels(b.graph) == [{"exp", "reduce_sum", "add", "tanh"}]
    right(b.graph)


def test_reductions_of_different_shapes_are_kernels_of_their_own() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (6, 8))
    rows = b.emit("reduce_sum", x, dims=(1,))
    b.graph.results = [rows, b.emit("reduce_sum", x, dims=(0,))]
    assert len(kernels(b.graph)) == 2
    right(b.graph)


def test_a_reduction_of_a_reduction_is_two_kernels() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (6, 5, 8))
    inner = b.emit("reduce_sum", x, dims=(2,))
    b.graph.results = [b.emit("reduce_max", inner, dims=(1,))]
    assert kernels(b.graph) == [{"reduce_sum"}, {"reduce_max"}]
    right(b.graph)


def test_cheap_values_are_computed_again_by_every_reader() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (6, 8))
    cheap = b.emit("neg", x)
    turned = b.emit("permute", cheap, dims=(1, 0))
    b.graph.results = [b.emit("abs", cheap), b.emit("exp", turned)]
    assert sorted(map(sorted, kernels(b.graph))) == [["abs"], ["exp"]]
    assert all(len(step.buffers) == 2 for step in right(b.graph).plan.steps)  # type: ignore[union-attr]


def test_expensive_values_are_stored_by_the_first_reader_that_can() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (6, 8))
    costly = b.emit("exp", x)
    turned = b.emit("permute", costly, dims=(1, 0))
    b.graph.results = [b.emit("abs", costly), b.emit("tanh", turned)]
    assert kernels(b.graph) == [{"exp", "abs"}, {"tanh"}]
    assert [len(step.buffers) for step in right(b.graph).plan.steps] == [3, 2]  # type: ignore[union-attr]


def test_an_expensive_value_is_not_repeated_along_an_expanded_dim() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (40,))
    wide = b.emit("expand", b.emit("tanh", b.emit("exp", x)), shape=(30, 40))
    b.graph.results = [b.emit("neg", wide)]
    assert kernels(b.graph) == [{"exp", "tanh"}, {"neg"}]
    right(b.graph)


def test_views_join_what_reads_them() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (6, 8))
    flipped = b.emit("flip", b.emit("exp", x), dims=(1,))
    part = b.emit("slice", flipped, dim=0, start=1, end=6, step=2)
    b.graph.results = [b.emit("neg", b.emit("reshape", part, shape=(24,)))]
    assert len(kernels(b.graph)) == 1
    right(b.graph)


def test_apart_every_operator_has_a_kernel() -> None:
    b = GraphBuilder("g")
    b.graph.results = [softmax(b, b.input("x", F32, (3, 20)))]
    assert kernels(b.graph, separate=True) == [
        {"reduce_max"}, {"sub"}, {"exp"}, {"reduce_sum"}, {"div"}
    ]  # fmt: skip
    check(b.graph, torch.randn(3, 20), separate=True)


# ---- contractions ---------------------------------------------------------------------------


def test_bias_and_gelu_are_the_epilogue_of_a_linear_layer() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (9, 16))
    weight = b.input("w", F32, (24, 16), role=InputRole.PARAM)
    bias = b.emit("expand", b.input("b", F32, (24,), role=InputRole.PARAM), shape=(9, 24))
    h = b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)))
    h = b.emit("add", h, bias)
    half, root = (b.emit("full", value=v, dtype=F32, shape=(9, 24)) for v in (0.5, 0.70710678))
    bell = b.emit("add", b.emit("mul", b.emit("erf", b.emit("mul", h, root)), half), half)
    b.graph.results = [b.emit("mul", h, bell)]
    assert kernels(b.graph) == [{"matmul", "add", "mul", "erf"}]
    made = right(b.graph)
    assert len(made.plan.steps) == 1
    assert len(made.plan.prepare) == 1, "the weight is packed once"


def test_an_epilogue_follows_reshapes_and_permutes() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (10, 16)), b.input("y", F32, (16, 12))
    heads = b.emit("reshape", b.emit("matmul", x, y), shape=(2, 5, 3, 4))
    turned = b.emit("permute", heads, dims=(0, 2, 1, 3))
    other = b.input("z", F32, (2, 3, 5, 4))
    b.graph.results = [b.emit("tanh", b.emit("add", turned, other))]
    assert kernels(b.graph) == [{"matmul", "add", "tanh"}]
    right(b.graph)


def test_an_epilogue_ends_where_elements_change_places() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (8, 8)), b.input("y", F32, (8, 8))
    product = b.emit("matmul", x, y)
    mirrored = b.emit("add", product, b.emit("permute", product, dims=(1, 0)))
    b.graph.results = [mirrored]
    assert kernels(b.graph) == [{"matmul"}, {"add"}]
    right(b.graph)


def test_expensive_operands_of_a_contraction_are_stored_and_casts_are_not() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (8, 16)), b.input("y", BF16, (16, 8))
    b.graph.results = [b.emit("matmul", b.emit("exp", x), b.emit("cast", y, dtype=F32))]
    assert kernels(b.graph) == [{"exp"}, {"matmul"}]
    right(b.graph)


def test_a_joined_operand_of_a_contraction_is_stored_and_read() -> None:
    b = GraphBuilder("g")
    past, new = b.input("past", F32, (2, 7, 16)), b.input("new", F32, (2, 1, 16))
    keys = b.emit("permute", b.emit("concat", past, new, dim=1), dims=(0, 2, 1))
    b.graph.results = [b.emit("matmul", b.input("q", F32, (2, 4, 16)), keys)]
    join, product = (step.buffers for step in right(b.graph).plan.steps)  # type: ignore[union-attr]
    assert len(product) == 3
    assert join[-1] in product


def test_a_contraction_and_the_softmax_behind_it_are_two_kernels() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (8, 16)), b.input("y", F32, (16, 20))
    b.graph.results = [softmax(b, b.emit("matmul", x, y))]
    assert [("matmul" in ops, "exp" in ops) for ops in kernels(b.graph)] == [
        (True, False), (False, True)
    ]  # fmt: skip
    right(b.graph)


# ---- kernels never wait for one another -----------------------------------------------------


def test_maps_that_need_each_others_values() -> None:
    # The first map stores exp(x) for the second; the second must not store exp(y) for the first.
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (64, 96)), b.input("y", F32, (96,))
    wide, long = b.emit("exp", x), b.emit("exp", y)
    first = b.emit("mul", wide, b.emit("expand", long, shape=(64, 96)))
    part = b.emit("flip", wide, dims=(0,))
    folded = b.emit("reduce_sum", part, dims=(0,))
    b.graph.results = [first, b.emit("add", long, folded)]
    assert len(kernels(b.graph)) == 3
    right(b.graph)


def test_epilogues_that_need_each_others_values() -> None:
    # The first product's epilogue needs the second one: that one's must not need the first.
    b = GraphBuilder("g")
    p, q, r, s = (b.input(name, F32, (8, 8)) for name in "pqrs")
    first, second = b.emit("matmul", p, q), b.emit("matmul", r, s)
    scaled = b.emit("mul", first, row(b, b.emit("reduce_sum", second, dims=(1,)), first))
    b.graph.results = [scaled, b.emit("add", first, second)]
    assert {"matmul", "add"} not in kernels(b.graph)
    right(b.graph)


def test_a_reduction_whose_other_reader_comes_first() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", F32, (8, 8)), b.input("w", F32, (8, 8))
    total = b.emit("reduce_sum", b.emit("exp", x), dims=(1,))
    product = b.emit("matmul", b.emit("tanh", row(b, total, x)), w)
    b.graph.results = [b.emit("add", row(b, total, x), b.emit("exp", product))]
    right(b.graph)


def test_a_returned_view_does_not_cut_an_epilogue_off() -> None:
    b = GraphBuilder("g")
    product = b.emit("matmul", b.input("x", F32, (1, 5, 1)), b.input("y", F32, (1, 1, 5)))
    same = b.emit("slice", product, dim=2, start=0, end=5, step=1)
    b.graph.results = [b.emit("add", same, product), same]
    right(b.graph)


def test_a_reduction_over_a_dim_of_one_does_not_share_loops_with_a_longer_one() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (4, 8, 1)), b.input("y", F32, (4, 8))
    largest = b.emit("reshape", b.emit("reduce_max", y, dims=(1,)), shape=(4, 1, 1))
    moved = b.emit("sub", x, b.emit("expand", largest, shape=(4, 8, 1)))
    b.graph.results = [b.emit("reduce_sum", moved, dims=(2,))]
    right(b.graph)


@pytest.mark.parametrize("reader", ["exp", "reduce_max"])
def test_what_nobody_reads_is_not_computed(reader: str) -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (4, 8))
    attrs = {"dims": (0,)} if reader == "reduce_max" else {}
    b.emit(reader, b.emit("sin", x), **attrs)  # type: ignore[arg-type]
    b.graph.results = [b.emit("neg", x)]
    assert kernels(b.graph) == [{"neg"}]
