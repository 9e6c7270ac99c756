"""Convolutions become convolutions of small integers, by the formula of the pass."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.config.schemes import Quantize, with_range
from kernelmill.core.dtype import BF16, F32, I8, DType, InputRole, to_torch
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes.quantize import Quantize as Pass
from kernelmill.plan.text import print_plan
from tests.compiled import check, interpreted, lowered, program
from tests.machine_code import runs_here
from tests.unit.passes.test_quantize import TARGETS, assert_near

SMALL = 2.0**-100
ALL = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


def layer(
    sizes: tuple[int, ...], outs: int, kernel: tuple[int, ...], dtype: DType = F32,
    role: InputRole = InputRole.PARAM, name: str = "a.weight", **changed: Any,
) -> Graph:  # fmt: skip
    """One convolution of images whose channels lie side by side."""
    attrs: dict[str, Any] = {**ALL, **changed}
    for each in ("stride", "padding", "dilation"):
        attrs[each] = attrs[each][: len(kernel)]
    images, channels, *place = sizes
    rank = len(place)
    b = GraphBuilder("g")
    x = b.input("x", dtype, (images, *place, channels))
    x = b.emit("permute", x, dims=(0, rank + 1, *range(1, rank + 1)))
    w = b.input(name, dtype, (outs, channels // attrs["groups"], *kernel), role=role)
    y = b.emit("conv", x, w, **attrs)
    b.graph.results = [b.emit("permute", y, dims=(0, *range(2, rank + 2), 1))]
    return b.graph


def given(graph: Graph) -> list[Tensor]:
    x, w = (entry.value for entry in graph.tensor_inputs())
    values = [torch.randn(*(int(str(size)) for size in v.shape)) for v in (x, w)]
    return [v.to(to_torch(x.dtype)) for v in values]


def quantised(graph: Graph, schemes: Quantize) -> Graph:
    made = Pass(schemes).apply(graph)
    verify_graph(made)
    return made


def by_definition(graph: Graph, x: Tensor, w: Tensor, low: float, high: float) -> Tensor:
    """Numbers as the formula has them, multiplied and summed by torch in float64."""
    (conv,) = (node for node in graph.nodes if node.op == "conv")
    size = torch.tensor(max((high - low) / 255, SMALL))
    zero = (torch.tensor(low) * size.reciprocal()).round() + 128
    whole = ((x.float() * size.reciprocal()).round() - zero).clamp(-128, 127) + zero
    scales = (w.float().abs().flatten(1).amax(1) / 127).clamp(min=SMALL)
    scales = scales.reshape(-1, *(1,) * (w.dim() - 1))
    numbers = (w.float() * scales.reciprocal()).round()
    image = whole.movedim(-1, 1).double() * size.double()
    attrs = conv.attrs
    convolve: Any = torch.nn.functional.conv1d if w.dim() == 3 else torch.nn.functional.conv2d
    result = convolve(
        image, numbers.double() * scales.double(), None, attrs["stride"], attrs["padding"],
        attrs["dilation"], attrs["groups"],
    )  # fmt: skip
    return result.movedim(1, -1)


WINDOWS: list[tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = [
    ((2, 64, 6, 5), 40, (1, 1), {}),
    ((1, 24, 5, 4), 17, (1, 1), {"stride": (2, 2)}),
    ((2, 16, 7, 6), 33, (3, 3), {"padding": (1, 1)}),
    ((1, 18, 6, 7), 16, (3, 2), {"padding": (2, 1), "stride": (2, 1), "dilation": (1, 2)}),
    ((2, 64, 4, 4), 16, (5, 5), {"padding": (2, 2)}),
    ((2, 20, 9), 24, (5,), {"padding": (2, 0), "stride": (3, 1)}),
    ((2, 40, 7, 6), 40, (3, 3), {"padding": (1, 1), "groups": 40}),
    ((1, 18, 9, 8), 18, (5, 3), {"padding": (2, 1), "stride": (2, 1), "groups": 18}),
    ((3, 70, 9), 70, (3,), {"padding": (1, 0), "dilation": (2, 1), "groups": 70}),
    ((2, 32, 5, 6), 40, (3, 3), {"padding": (1, 1), "groups": 2}),
    ((1, 54, 7, 4), 51, (3, 2), {"padding": (2, 0), "stride": (2, 1), "groups": 3}),
    ((2, 128, 5, 4), 66, (1, 1), {"groups": 2}),
    ((1, 128, 4, 3), 96, (3, 3), {"padding": (1, 1), "groups": 2}),
    ((2, 68, 11), 72, (4,), {"padding": (1, 0), "dilation": (2, 1), "groups": 4}),
]
RANGES = [(-2.0, 2.5), (0.0, 3.0), (-1.5, 0.0), (-0.25, 4.0)]


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize(("sizes", "outs", "kernel", "attrs"), WINDOWS, ids=str)
def test_the_formula(
    sizes: tuple[int, ...], outs: int, kernel: tuple[int, ...], attrs: dict[str, Any], dtype: DType
) -> None:
    torch.manual_seed(0)
    graph = layer(sizes, outs, kernel, dtype, **attrs)
    x, w = given(graph)
    for low, high in RANGES:
        made = quantised(graph, with_range(low, high))
        (conv,) = (node for node in made.nodes if node.op == "conv")
        assert conv.operands[0].dtype == conv.operands[1].dtype == I8
        (found,) = run_graph(made, [x, w])
        assert isinstance(found, Tensor) and found.dtype == x.dtype
        assert_near(found, by_definition(graph, x, w, low, high), dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("sizes", "outs", "kernel", "attrs"), WINDOWS, ids=str)
def test_code_agrees_on_every_processor(
    sizes: tuple[int, ...], outs: int, kernel: tuple[int, ...], attrs: dict[str, Any], target: str
) -> None:
    """As machine code where this processor has the instructions, else by the kernel interpreter:
    all results to the bit, as sums are exact."""
    torch.manual_seed(1)
    machine, graph = profile(target), layer(sizes, outs, kernel, **attrs)
    made = quantised(graph, with_range(-2.0, 2.5))
    low = lowered(made, machine)
    values = given(graph)
    runs = runs_here(machine.isa)
    (found,) = program(low, machine)(*values) if runs else interpreted(low, values)
    (wanted,) = run_graph(made, values)
    assert isinstance(found, Tensor) and isinstance(wanted, Tensor)
    assert torch.equal(found, wanted)


def test_two_layers_of_one_image_round_it_once_and_the_next_rounds_as_it_is_made() -> None:
    torch.manual_seed(2)
    b = GraphBuilder("g")
    x = b.emit("permute", b.input("x", F32, (2, 6, 6, 32)), dims=(0, 3, 1, 2))
    w, v = (b.input(f"{n}.weight", F32, (32, 32, 3, 3), role=InputRole.PARAM) for n in "ab")
    attrs = {**ALL, "padding": (1, 1)}
    first, other = (b.emit("conv", x, weight, **attrs) for weight in (w, v))
    zero = b.emit("full", value=0.0, dtype=F32, shape=first.shape)
    last = b.emit("conv", b.emit("maximum", b.emit("add", first, other), zero), v, **attrs)
    b.graph.results = [b.emit("permute", last, dims=(0, 2, 3, 1))]
    made = quantised(b.graph, {"a": "int8(-2, 2)", "b": "int8(-2, 2)"})
    assert sum(node.op == "round" and node.operands[0].shape == x.shape for node in made.nodes) == 2
    values = [torch.randn(2, 6, 6, 32), torch.randn(32, 32, 3, 3), torch.randn(32, 32, 3, 3)]
    check(made, *values)
    text = print_plan(lowered(made).plan)
    own, after = (
        '("mul", "round", "sub"',
        '"maximum", "mul", "round", "sub", "maximum", "minimum", "cast")',
    )
    assert text.count(f"operators{own}") == 1
    assert f'operators("conv", "add", "cast", "mul", "add", {after}' in text


def test_rows_of_a_product_by_one_range() -> None:
    torch.manual_seed(3)
    b = GraphBuilder("g")
    x = b.input("x", F32, (5, 48))
    w = b.input("a.weight", F32, (20, 48), role=InputRole.PARAM)
    b.graph.results = [b.emit("matmul", x, b.emit("permute", w, dims=(1, 0)))]
    made = quantised(b.graph, "int8(-3, 1.5)")
    assert not any(node.op == "reduce_min" for node in made.nodes)
    values = [torch.randn(5, 48), torch.randn(20, 48)]
    (found,) = run_graph(made, values)
    assert isinstance(found, Tensor)
    wanted = by_definition(
        layer((1, 48, 5, 1), 20, (1, 1)), values[0][None, :, None], values[1][..., None, None],
        -3.0, 1.5,
    )  # fmt: skip
    assert_near(found, wanted.reshape(5, 20), F32)
    check(made, *values)


def test_weights_and_images_of_extremes() -> None:
    torch.manual_seed(4)
    graph = layer((1, 16, 4, 4), 20, (3, 3), padding=(1, 1))
    x, w = given(graph)
    w[0], w[1, 2, 0, 1], w[2] = 0.0, math.nan, 1e-39
    x[0, 0, 0] = 1e30
    made = quantised(graph, "int8(-2, 2)")
    (found,) = run_graph(made, [x, w])
    assert isinstance(found, Tensor)
    assert (found[..., 0] == 0).all() and found[..., 1].isnan().all()
    assert found[..., 2:].isfinite().all()
    check(made, x, w)


def test_no_images() -> None:
    made = quantised(layer((0, 16, 4, 4), 16, (3, 3), padding=(1, 1)), "int8(-2, 2)")
    check(made, torch.randn(0, 4, 4, 16), torch.randn(16, 16, 3, 3))


@pytest.mark.parametrize(
    ("graph", "schemes"),
    [
        (layer((1, 16, 4, 4), 16, (3, 3)), "int8"),
        (layer((1, 16, 4, 4), 16, (3, 3)), "int8-weights"),
        (layer((1, 16, 4, 4), 16, (3, 3)), {"b": "int8(-1, 1)"}),
        (layer((1, 16, 4, 4), 15, (3, 3)), "int8(-1, 1)"),
        (layer((1, 15, 4, 4), 16, (3, 3)), "int8(-1, 1)"),
        (layer((1, 32, 4, 4), 64, (3, 3), groups=4), "int8(-1, 1)"),
        (layer((1, 64, 4, 4), 32, (3, 3), groups=4), "int8(-1, 1)"),
        (layer((1, 32, 4, 4), 64, (3, 3), groups=32), "int8(-1, 1)"),
        (layer((1, 15, 4, 4), 15, (3, 3), groups=15), "int8(-1, 1)"),
        (layer((1, 16, 4, 4), 16, (3, 3), role=InputRole.USER), "int8(-1, 1)"),
    ],
)
def test_what_stays_as_it_is(graph: Graph, schemes: Quantize) -> None:
    assert Pass(schemes).apply(graph) is graph
