"""Random networks of convolutions: whatever layout is chosen, the results are eager's."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.core.dtype import F32, InputRole
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from tests.compiled import check

WIDTHS = (1, 3, 12, 16, 20, 32)


def _conv(draw: st.DrawFn, b: GraphBuilder, x: Value) -> Value:
    channels = int(str(x.shape[1]))
    style = draw(st.sampled_from(("dense", "depthwise", "groups")))
    groups, outs = 1, draw(st.sampled_from(WIDTHS))
    if style == "depthwise":
        groups = outs = channels
    elif style == "groups" and channels % 2 == 0:
        groups, outs = 2, 2 * draw(st.sampled_from((5, 12, 16)))
    sizes = [int(str(size)) for size in x.shape[2:]]
    padding = tuple(draw(st.integers(0, 2)) for _ in sizes)
    window = tuple(
        draw(st.integers(1, min(3, size + 2 * low)))
        for size, low in zip(sizes, padding, strict=True)
    )
    room = all(
        size + 2 * low >= 2 * (taps - 1) + 1
        for size, low, taps in zip(sizes, padding, window, strict=True)
    )
    dilation = draw(st.integers(1, 2)) if room else 1
    stride = tuple(draw(st.integers(1, 2)) for _ in sizes)
    weight = b.input(
        f"w{len(b.graph.inputs)}", F32, (outs, channels // groups, *window), role=InputRole.PARAM
    )
    return b.emit(
        "conv", x, weight, stride=stride, padding=padding, dilation=(dilation,) * 2, groups=groups
    )  # fmt: skip


def _other(draw: st.DrawFn, b: GraphBuilder, x: Value, images: list[Value]) -> Value:
    kind = draw(st.sampled_from(("neg", "add", "concat", "pad", "slice", "pool", "norm")))
    alike = [y for y in images if y.shape == x.shape]
    joinable = [y for y in images if (y.shape[0], *y.shape[2:]) == (x.shape[0], *x.shape[2:])]
    size = int(str(x.shape[2]))
    if kind == "add":
        return b.emit("add", x, draw(st.sampled_from(alike)))
    if kind == "concat":
        return b.emit("concat", x, draw(st.sampled_from(joinable)), dim=1)
    if kind == "pad":
        return b.emit("pad", x, low=(0, 0, 1, 0), high=(0, 2, 0, 1), value=0.5)
    if kind == "slice" and size > 2:
        return b.emit("slice", x, dim=2, start=1, end=size, step=1)
    if kind == "pool" and size > 1:
        around = b.emit(
            "window", x, dims=(2,), size=(2,), stride=(2,), dilation=(1,), low=(0,), high=(0,),
            value=0.0,
        )  # fmt: skip
        return b.emit("reduce_max", around, dims=(4,))
    if kind == "norm":
        scale = b.input(f"s{len(b.graph.inputs)}", F32, (x.shape[1], 1, 1), role=InputRole.PARAM)
        wide = b.emit("reshape", b.emit("neg", scale), shape=(1, x.shape[1], 1, 1))
        return b.emit("mul", x, b.emit("expand", wide, shape=x.shape))
    return b.emit("neg", x)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Some convolutions with other operators between them; one to three results."""
    b = GraphBuilder("g")
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from(WIDTHS)), *draw(_SIZES))
    images = [b.input("x", F32, shape)]
    for _ in range(draw(st.integers(2, 6))):
        x = draw(st.sampled_from(images[-3:]))
        grown = _conv(draw, b, x) if draw(st.booleans()) else _other(draw, b, x, images)
        if int(str(grown.shape[1])) <= 64:
            images.append(grown)
    computed = [image for image in images if image.node is not None] or [b.emit("neg", images[0])]
    chosen = draw(st.lists(st.sampled_from(computed), max_size=2, unique=True))
    b.graph.results = list(dict.fromkeys([computed[-1], *chosen]))
    return b.graph


_SIZES = st.tuples(st.integers(1, 9), st.integers(1, 18))


@settings(max_examples=25)
@given(networks(), st.integers(0, 2**16))
def test_networks_of_convolutions_equal_eager(graph: Graph, seed: int) -> None:
    torch.manual_seed(seed)
    inputs = [
        # A few small halves: sums stay exact through some layers.
        torch.randint(-2, 3, [int(str(size)) for size in entry.value.shape]) / 2
        for entry in graph.tensor_inputs()
    ]
    check(graph, *inputs)
