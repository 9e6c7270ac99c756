"""Convolutions lowered for the tile unit, which code for this machine emulates, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelmill.codegen.compile import assembly
from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, F32, InputRole
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from tests.compiled import lowered, whole
from tests.unit.lower.for_tiles import ALWAYS, AMX, agrees, texts

Change = Callable[[GraphBuilder, Value], Value]


def unchanged(_: GraphBuilder, value: Value) -> Value:
    return value


def convolution(
    sizes: tuple[Dim, ...], outs: int, kernel: tuple[int, ...], before: Change = unchanged,
    after: Change = unchanged, **changed: Any,
) -> Graph:  # fmt: skip
    """Images and results lie channels last; `sizes` are (images, channels, rows and columns)."""
    rank = len(sizes) - 2
    attrs: dict[str, Any] = {"stride": (1,) * rank, "padding": (0,) * rank}
    attrs |= {"dilation": (1,) * rank, "groups": 1, **changed}
    b = GraphBuilder("g")
    images, channels, *place = sizes
    x = b.input("x", BF16, (images, *place, channels))
    x = b.emit("permute", x, dims=(0, rank + 1, *range(1, rank + 1)))
    per_group = channels // attrs["groups"]
    w = b.input("w", BF16, (outs, per_group, *kernel), role=InputRole.PARAM)
    y = b.emit("conv", before(b, x), w, **attrs)
    b.graph.results = [b.emit("permute", after(b, y), dims=(0, *range(2, rank + 2), 1))]
    return b.graph


def images(count: int, channels: int, *place: int) -> torch.Tensor:
    return whole(BF16, count, *place, channels)


WINDOWS = [
    ((1, 64, 8, 12), 40, (1, 1), {}),
    ((1, 64, 7, 7), 40, (1, 1), {}),
    ((2, 32, 9, 11), 40, (3, 3), {"padding": (1, 1)}),
    ((2, 64, 8, 8), 33, (3, 2), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}),
    ((3, 32, 6, 5), 16, (1, 1), {"stride": (2, 2)}),
    ((2, 96, 4, 4), 8, (5, 5), {"padding": (3, 2)}),
    ((2, 32, 30), 24, (5,), {"padding": (2,), "stride": (3,)}),
]


@pytest.mark.parametrize(("sizes", "outs", "kernel", "attrs"), WINDOWS, ids=str)
def test_windows(
    sizes: tuple[int, ...], outs: int, kernel: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    made = convolution(sizes, outs, kernel, **attrs)
    agrees(made, images(*sizes), whole(BF16, outs, sizes[1], *kernel), interpret=True)


def test_pixels_on_cache_lines_are_read_where_they_lie() -> None:
    made = texts(lowered(convolution((1, 64, 8, 12), 40, (1, 1)), ALWAYS))
    assert "tile_load b1" in made and "stride 64" in made


def test_windows_are_copied_as_they_lie() -> None:
    """What is outside of the image is masked, and no number is widened and rounded again."""
    made = lowered(convolution((2, 32, 9, 11), 40, (3, 3), padding=(1, 1)), ALWAYS)
    (text,) = (part for part in texts(made).split("kernel ") if '"Conv"' in part)
    first = text[: text.index("tile_dot")]
    assert "mask" in first and "if " not in first[: first.index("store scratch")]


def test_an_image_that_is_rounded_as_it_is_read() -> None:
    b = GraphBuilder("g")
    x = b.emit("permute", b.input("x", F32, (1, 5, 6, 32)), dims=(0, 3, 1, 2))
    w = b.input("w", BF16, (17, 32, 3, 3), role=InputRole.PARAM)
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    y = b.emit("conv", b.emit("cast", x, dtype=BF16), w, **attrs)
    b.graph.results = [b.emit("permute", y, dims=(0, 2, 3, 1))]
    made = agrees(b.graph, whole(F32, 1, 5, 6, 32), whole(BF16, 17, 32, 3, 3), interpret=True)
    assert len(made.plan.steps) == 1


def test_a_padded_image_has_its_own_border() -> None:
    def before(b: GraphBuilder, x: Value) -> Value:
        return b.emit("pad", x, low=(0, 0, 1, 1), high=(0, 0, 0, 2), value=2.0)

    made = convolution((1, 32, 5, 6), 17, (3, 3), before, padding=(1, 1))
    agrees(made, images(1, 32, 5, 6), whole(BF16, 17, 32, 3, 3), interpret=True)


def test_a_slice_of_an_image_ends_where_it_ends() -> None:
    def before(b: GraphBuilder, x: Value) -> Value:
        return b.emit("slice", x, dim=3, start=1, end=6, step=1)

    made = convolution((2, 32, 5, 8), 17, (3, 3), before, padding=(1, 1))
    agrees(made, images(2, 32, 5, 8), whole(BF16, 17, 32, 3, 3), interpret=True)


def test_the_epilogue_adds_an_image() -> None:
    def after(b: GraphBuilder, y: Value) -> Value:
        r = b.input("r", BF16, (2, 6, 6, 40))
        zero = b.emit("full", value=0.0, dtype=BF16, shape=y.shape)
        return b.emit("maximum", b.emit("add", y, b.emit("permute", r, dims=(0, 3, 1, 2))), zero)

    made = convolution((2, 32, 6, 6), 40, (3, 3), after=after, padding=(1, 1))
    given = images(2, 32, 6, 6), whole(BF16, 40, 32, 3, 3), images(2, 40, 6, 6)
    assert len(agrees(made, *given).plan.steps) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_any_number_of_images(count: int) -> None:
    made = convolution((sym("n"), 32, 6, 7), 20, (3, 3), padding=(1, 1))
    agrees(made, images(count, 32, 6, 7), whole(BF16, 20, 32, 3, 3))


def test_others_are_not_for_tiles() -> None:
    for channels, groups in ((24, 1), (64, 2)):
        made = convolution((1, channels, 8, 8), 32, (3, 3), groups=groups)
        assert "tile_dot" not in texts(lowered(made, ALWAYS))


def test_the_instructions() -> None:
    made = lowered(convolution((1, 128, 28, 28), 128, (3, 3), padding=(1, 1)), AMX)
    (kernel,) = (kernel for kernel in made.kernels.values() if kernel.type == "Conv")
    text = assembly(kernel, AMX.isa)
    assert "tdpbf16ps" in text
    assert not [x for x in text.splitlines() if "\ttile" in x and "(%rsp" in x]
