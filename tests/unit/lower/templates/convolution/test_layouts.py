"""conv in graphs, whatever its layout: windows, epilogues, dtypes, ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F16, F32, F64, I8, I32, I64, DType, InputRole
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from tests.compiled import check, graph, whole

OLDER = (profile("x86-64-v2"), profile("x86-64-v3"))

PLAIN: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1x1": ((2, 5, 4, 7), (6, 5, 1, 1), {}),
    "3x3": ((2, 3, 6, 9), (4, 3, 3, 3), {"padding": (1, 1)}),
    "wide": ((1, 3, 5, 40), (8, 3, 3, 3), {"padding": (1, 1)}),
    "strided": ((1, 3, 11, 35), (8, 3, 5, 3), {"stride": (2, 3), "padding": (2, 0)}),
    "dilated": ((1, 2, 9, 9), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (2, 1)}),
    "groups": ((2, 6, 5, 5), (9, 2, 3, 3), {"groups": 3}),
    "depthwise": ((1, 8, 7, 20), (8, 1, 3, 3), {"groups": 8, "padding": (1, 1)}),
    "depthwise, strided": ((1, 4, 8, 8), (8, 1, 3, 3), {"groups": 4, "stride": (2, 2)}),
    "all of it": ((2, 4, 3, 5), (6, 4, 3, 5), {}),
    "no images": ((0, 3, 4, 4), (2, 3, 3, 3), {}),
    "only padding": ((1, 1, 1, 1), (2, 1, 2, 2), {"padding": (3, 3), "stride": (2, 2)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("role", [InputRole.PARAM, InputRole.USER])
def test_conv2d_with_bias_and_relu(name: str, role: InputRole) -> None:
    image, kernel, attrs = CONVOLUTIONS[name]
    b = GraphBuilder("g")
    x = b.input("x", F32, image)
    weight = b.input("w", F32, kernel, role=role)
    bias = b.input("b", F32, (kernel[0],), role=role)
    found = b.emit("conv", x, weight, **{**PLAIN, **attrs})
    wide = b.emit("expand", b.emit("reshape", bias, shape=(kernel[0], 1, 1)), shape=found.shape)
    zero = b.emit("full", value=0.0, dtype=F32, shape=found.shape)
    b.graph.results = [b.emit("maximum", b.emit("add", found, wide), zero)]
    made = check(b.graph, whole(F32, *image), whole(F32, *kernel), whole(F32, kernel[0]))
    assert len(made.plan.steps) == 1


@pytest.mark.parametrize("target", OLDER, ids=["v2", "v3"])
@pytest.mark.parametrize("name", ["3x3", "strided", "depthwise"])
def test_conv2d_on_older_processors(name: str, target: Any) -> None:
    image, kernel, attrs = CONVOLUTIONS[name]
    made = graph(
        lambda b, x, w: b.emit("conv", x, w, **{**PLAIN, **attrs}), (F32, image), (F32, kernel)
    )
    check(made, whole(F32, *image), whole(F32, *kernel), targets=[target])


@pytest.mark.parametrize("dtype", [F64, BF16, F16, I64, I32, I8], ids=str)
def test_conv_of_every_dtype(dtype: DType) -> None:
    attrs = {**PLAIN, "padding": (1, 1), "groups": 2}
    made = graph(
        lambda b, x, w: b.emit("conv", x, w, **attrs), (dtype, (1, 4, 5, 9)), (dtype, (6, 2, 3, 3))
    )
    inputs = [whole(dtype, *shape, low=-1, high=3) for shape in ((1, 4, 5, 9), (6, 2, 3, 3))]
    check(made, *inputs, interpret=dtype in (BF16, I8))


@pytest.mark.parametrize("rank", [1, 3])
def test_conv1d_and_conv3d(rank: int) -> None:
    attrs: dict[str, Any] = {
        "stride": (2, 1, 1)[:rank], "padding": (1, 2, 0)[:rank], "dilation": (1, 2, 1)[:rank],
        "groups": 1,
    }  # fmt: skip
    image, kernel = (2, 3, 9, 6, 5)[: rank + 2], (4, 3, 3, 2, 3)[: rank + 2]
    made = graph(lambda b, x, w: b.emit("conv", x, w, **attrs), (F32, image), (F32, kernel))
    check(made, whole(F32, *image), whole(F32, *kernel), targets=OLDER, interpret=True)


def test_a_conv_whose_image_is_computed_padded_and_channels_last() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (2, 3, 6, 7), (3 * 42, 1, 21, 3))
    weight = b.input("w", F32, (4, 3, 3, 3), role=InputRole.PARAM)
    around = b.emit("pad", x, low=(0, 0, 1, 0), high=(0, 0, 2, 1), value=1.0)
    plain, computed = b.emit("conv", around, weight, **PLAIN), b.emit("tanh", x)
    found = b.emit("conv", computed, weight, **{**PLAIN, "padding": (1, 1)})
    b.graph.results = [plain, b.emit("layout", found, strides=(4 * 42, 1, 28, 4))]
    image = torch.randn(2, 3, 6, 7).to(memory_format=torch.channels_last)
    check(b.graph, image, torch.randn(4, 3, 3, 3), targets=OLDER)


@pytest.mark.parametrize("size", [3, 5, 18])
def test_a_conv_over_symbolic_images(size: int) -> None:
    n, h, w = sym("s0"), sym("s1", 3), sym("s2", 3)
    attrs = {**PLAIN, "padding": (1, 0), "stride": (1, 2)}
    made = graph(
        lambda b, x, k: b.emit("conv", x, k, **attrs), (F32, (n, 3, h, w)), (F32, (4, 3, 3, 3))
    )
    check(made, whole(F32, 2, 3, size, size + 1), whole(F32, 4, 3, 3, 3))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_constant_image_whose_weights_vary(stride: int) -> None:
    attrs = {"stride": (stride,), "padding": (0,), "dilation": (1,), "groups": 1}
    b = GraphBuilder("g")
    x, weight = b.input("x", F32, (1, 3, 40), role=InputRole.PARAM), b.input("w", F32, (8, 3, 1))
    b.graph.results = [b.emit("conv", x, weight, **attrs)]
    check(b.graph, whole(F32, 1, 3, 40), whole(F32, 8, 3, 1))


def test_equal_convolutions_with_weights_that_are_constant_and_not() -> None:
    """Groups of equal structure: one has vectors of channels, the other of pixels."""
    b = GraphBuilder("g")
    x, attrs = b.input("x", F32, (1, 16, 6, 6)), {**PLAIN, "padding": (1, 1)}
    strides = (16 * 36, 1, 6 * 16, 16)
    for role in (InputRole.PARAM, InputRole.USER):
        weight = b.input(role, F32, (16, 16, 3, 3), role=role)
        found = b.emit("conv", x, weight, **attrs)
        b.graph.results.append(b.emit("layout", found, strides=strides))
    weights = whole(F32, 16, 16, 3, 3), whole(F32, 16, 16, 3, 3)
    check(b.graph, whole(F32, 1, 16, 6, 6), *weights, targets=OLDER)
