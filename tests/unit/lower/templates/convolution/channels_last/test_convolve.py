"""Convolutions whose results have their channels side by side, and the layout of chains of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F16, F32, F64, DType, InputRole
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.driver.prepare import choose_layouts
from kernelmill.lower.templates.convolution.channels_last.dense import Dense
from kernelmill.lower.templates.convolution.channels_last.layout import plan_convolution
from kernelmill.lower.templates.convolution.channels_last.pixel_tiles import (
    ChannelBlocks,
    Order,
    PanelMajor,
    TileMajor,
)
from kernelmill.lower.templates.convolution.channels_last.spec import Geometry
from kernelmill.plan.ir import Plan
from tests.compiled import check, lowered, program, whole

OLDER = (profile("x86-64-v2"), profile("x86-64-v3"))
PLAIN: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
VOLUME: dict[str, Any] = {"stride": (1, 1, 1), "padding": (0, 0, 0), "dilation": (1, 1, 1)}
Shape = tuple[int, ...]

GEOMETRIES: dict[str, tuple[Shape, Shape, dict[str, Any]]] = {
    "pixels": ((2, 16, 4, 7), (32, 16, 1, 1), {}),
    "pixels with tails": ((1, 5, 5, 5), (19, 5, 1, 1), {}),
    "every second pixel": ((1, 24, 7, 9), (16, 24, 1, 1), {"stride": (2, 2)}),
    "pixels and padding": ((1, 8, 3, 4), (16, 8, 1, 1), {"padding": (1, 2)}),
    "pixels a page apart": ((1, 1024, 7, 7), (16, 1024, 1, 1), {}),
    "a prime number of pixels": ((1, 16, 1, 53), (16, 16, 1, 1), {}),
    "3x3": ((2, 16, 7, 7), (32, 16, 3, 3), {"padding": (1, 1)}),
    "3x3, 14 wide": ((1, 20, 14, 14), (40, 20, 3, 3), {"padding": (1, 1)}),
    "3x3, 17 wide": ((1, 3, 5, 17), (48, 3, 3, 3), {"padding": (1, 1)}),
    "3x3, strided": ((1, 16, 9, 29), (24, 16, 3, 3), {"stride": (2, 2), "padding": (1, 1)}),
    "7x7, strided": ((1, 3, 30, 32), (64, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    "patches": ((1, 3, 12, 16), (24, 3, 4, 4), {"stride": (4, 4)}),
    "skewed": ((1, 7, 11, 12), (17, 7, 5, 2), {"stride": (1, 3), "padding": (2, 0)}),
    "dilated": ((1, 6, 12, 11), (16, 6, 3, 2), {"dilation": (2, 3), "padding": (3, 1)}),
    "only padding": ((1, 2, 1, 1), (16, 2, 2, 2), {"padding": (3, 3), "stride": (2, 2)}),
    "in blocks": ((1, 2048, 4, 9), (32, 2048, 3, 3), {"padding": (1, 1)}),
    "groups": ((2, 24, 6, 6), (32, 12, 3, 3), {"groups": 2, "padding": (1, 1)}),
    "depthwise": ((2, 40, 9, 11), (40, 1, 3, 3), {"groups": 40, "padding": (1, 1)}),
    "depthwise, strided": (
        (1, 70, 9, 14), (70, 1, 3, 3), {"groups": 70, "stride": (2, 2), "padding": (1, 1)}
    ),
    "depthwise, 7x7": ((1, 16, 7, 9), (16, 1, 7, 7), {"groups": 16, "padding": (3, 3)}),
    "along a line": (
        (2, 12, 40), (20, 12, 3), {"stride": (2,), "padding": (1,), "dilation": (1,)}
    ),
    "3x3x3": ((2, 16, 4, 7, 6), (24, 16, 3, 3, 3), {**VOLUME, "padding": (1, 1, 1)}),
    "3x3x3, strided": (
        (1, 16, 5, 6, 9), (32, 16, 3, 3, 3), {**VOLUME, "padding": (1, 1, 1), "stride": (2, 2, 2)}
    ),
    "a skewed volume": (
        (1, 7, 8, 9, 11), (17, 7, 3, 2, 4),
        {"stride": (1, 2, 3), "padding": (3, 0, 2), "dilation": (3, 2, 1)},
    ),
    "only padding of a volume": (
        (1, 2, 1, 1, 2), (16, 2, 2, 2, 2), {**VOLUME, "padding": (3, 3, 2), "stride": (7, 2, 1)}
    ),
    "voxels with tails": ((2, 5, 3, 4, 5), (19, 5, 1, 1, 1), VOLUME),
    "every second voxel": ((1, 24, 5, 4, 6), (16, 24, 1, 1, 1), {**VOLUME, "stride": (2, 2, 2)}),
    "planes in a row": ((1, 12, 9, 5, 6), (16, 12, 5, 1, 1), {**VOLUME, "padding": (2, 0, 0)}),
    "a volume in blocks": (
        (1, 1024, 2, 4, 9), (32, 1024, 3, 3, 3), {**VOLUME, "padding": (1, 1, 1)}
    ),
    "a volume in groups": (
        (2, 24, 3, 4, 5), (32, 12, 2, 3, 3), {**VOLUME, "padding": (1, 0, 1), "groups": 2}
    ),
    "depthwise, 3x3x3": (
        (2, 40, 4, 5, 11), (40, 1, 3, 3, 3), {**VOLUME, "padding": (1, 1, 1), "groups": 40}
    ),
    "depthwise, skewed": (
        (1, 19, 7, 6, 9), (19, 1, 2, 3, 2),
        {"stride": (2, 1, 2), "padding": (1, 2, 0), "dilation": (2, 1, 3), "groups": 19},
    ),
}  # fmt: skip


def channels_last(shape: Shape) -> Shape:
    """Strides of an image stored channels last."""
    channels, *space = shape[1:]
    strides = [channels]
    for size in reversed(space[1:]):
        strides.insert(0, strides[0] * size)
    return (shape[1] * int(torch.tensor(space).prod()), 1, *strides)


def one(name: str, last: bool = True, dtype: DType = F32) -> tuple[Graph, tuple[Shape, Shape]]:
    """A graph of one convolution with a result channels last, and its inputs' shapes."""
    image, kernel, attrs = GEOMETRIES[name]
    b = GraphBuilder("g")
    x = b.input("x", dtype, image, channels_last(image) if last else None)
    weight = b.input("w", dtype, kernel, role=InputRole.PARAM)
    found = b.emit("conv", x, weight, **{**PLAIN, **attrs})
    shape = tuple(int(str(size)) for size in found.shape)
    b.graph.results = [b.emit("layout", b.emit("neg", found), strides=channels_last(shape))]
    return b.graph, (image, kernel)


def strided(tensor: Tensor) -> Tensor:
    """The same numbers, channels last."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("last", [True, False], ids=["last", "planar"])
def test_one_convolution_equals_eager(name: str, last: bool) -> None:
    graph, (image, kernel) = one(name, last)
    x = whole(F32, *image, low=-2, high=3)
    made = check(graph, strided(x) if last else x, whole(F32, *kernel, low=-2, high=3))
    assert len(made.plan.steps) == 1
    assert [len(plan.shape) for plan in made.plan.buffers if plan.kind == "packed"] in ([6], [2])


@pytest.mark.parametrize(
    "name",
    ["pixels with tails", "3x3", "groups", "depthwise, strided", "a skewed volume",
     "depthwise, skewed"],
)  # fmt: skip
def test_the_interpreter_and_older_processors_agree(name: str) -> None:
    graph, (image, kernel) = one(name)
    x = strided(whole(F32, *image, low=-2, high=3))
    check(graph, x, whole(F32, *kernel, low=-2, high=3), targets=OLDER, interpret=True)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(
    "name",
    ["pixels", "every second pixel", "3x3", "3x3, 14 wide", "3x3, strided", "in blocks", "groups",
     "along a line", "3x3x3", "every second voxel"],
)  # fmt: skip
def test_pixels_read_in_vectors_of_channels_agree(name: str, dtype: DType) -> None:
    """What is lowered for AArch64, run here by code of this machine."""
    graph, (image, kernel) = one(name, dtype=dtype)
    found = lowered(graph, profile("aarch64-neon"))
    assert "extract(" in print_kernel(found.kernels[found.plan.steps[-1].kernel])
    inputs = strided(whole(dtype, *image, low=-2, high=3)), whole(dtype, *kernel, low=-2, high=3)
    for got, expected in zip(program(found)(*inputs), run_graph(graph, list(inputs)), strict=True):
        assert isinstance(got, Tensor) and isinstance(expected, Tensor)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [F64, BF16, F16], ids=str)
@pytest.mark.parametrize(
    "name",
    ["pixels", "3x3, strided", "in blocks", "depthwise", "3x3x3, strided", "every second voxel",
     "a volume in groups", "depthwise, 3x3x3"],
)  # fmt: skip
def test_other_dtypes(name: str, dtype: DType) -> None:
    graph, (image, kernel) = one(name, dtype=dtype)
    check(
        graph, strided(whole(dtype, *image, low=-1, high=2)), whole(dtype, *kernel, low=0, high=2)
    )


@pytest.mark.parametrize("images", [0, 1, 3])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_number_of_images_that_is_known_at_the_call(images: int, axes: int) -> None:
    space, window, ones = (6, 7, 5)[:axes], (3,) * axes, (1,) * axes
    b = GraphBuilder("g")
    x = b.input("x", F32, (sym("s0"), 8, *space))
    for number in range(2):
        shape = (16, 8 * (number + 1), *window)
        weight = b.input(f"w{number}", F32, shape, role=InputRole.PARAM)
        x = b.emit("conv", x, weight, stride=ones, padding=ones, dilation=ones, groups=1)
    b.graph.results = [x]
    assert len(choose_layouts(b.graph, _parameters(b.graph)).nodes) == 2
    image = whole(F32, images, 8, *space, low=-1, high=2)
    weights = [whole(F32, 16, 8 * k, *window, low=-1, high=2) for k in (1, 2)]
    check(b.graph, image, *weights)


def test_weights_that_are_no_parameters_take_the_other_template() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (1, 16, 5, 5), channels_last((1, 16, 5, 5)))
    weight = b.input("w", F32, (16, 16, 3, 3))
    found = b.emit("conv", x, weight, **PLAIN)
    b.graph.results = [b.emit("layout", found, strides=channels_last((1, 16, 3, 3)))]
    made = check(b.graph, strided(whole(F32, 1, 16, 5, 5)), whole(F32, 16, 16, 3, 3))
    assert made.plan.prepare == ()


# ---- chains ---------------------------------------------------------------------------------


class Net:
    """A graph under construction, with its inputs' values."""

    def __init__(self, *image: int) -> None:
        self.b = GraphBuilder("g")
        self.inputs: list[Tensor] = [torch.randn(image)]
        self.x = self.b.input("x", F32, image)

    def parameter(self, *shape: int) -> Value:
        self.inputs.append(torch.rand(shape) + 0.1)
        return self.b.input(f"p{len(self.inputs)}", F32, shape, role=InputRole.PARAM)

    def conv(self, x: Value, outs: int, size: int = 3, stride: int = 1, groups: int = 1) -> Value:
        channels = int(str(x.shape[1])) // groups
        weight = self.parameter(outs, channels, size, size)
        self.inputs[-1] = torch.randn(outs, channels, size, size) / (channels * size * size) ** 0.5
        pair = (size // 2, size // 2)
        return self.b.emit(
            "conv", x, weight, stride=(stride, stride), padding=pair, dilation=(1, 1), groups=groups
        )  # fmt: skip

    def norm(self, x: Value) -> Value:
        """Batch norm in inference, as it is imported."""
        b, size = self.b, int(str(x.shape[1]))
        mean, variance, weight, bias = (self.parameter(size) for _ in range(4))
        scale = b.emit("mul", b.emit("rsqrt", variance), weight)
        shift = b.emit("add", b.emit("mul", b.emit("neg", mean), scale), bias)
        return b.emit("add", b.emit("mul", x, self.wide(scale, x)), self.wide(shift, x))

    def wide(self, value: Value, like: Value) -> Value:
        column = self.b.emit("reshape", value, shape=(1, value.shape[0], 1, 1))
        return self.b.emit("expand", column, shape=like.shape)

    def relu(self, x: Value) -> Value:
        return self.b.emit("maximum", x, self.b.emit("full", value=0.0, dtype=F32, shape=x.shape))

    def pool(self, x: Value) -> Value:
        around = self.b.emit(
            "window", x, dims=(2, 3), size=(3, 3), stride=(2, 2), dilation=(1, 1), low=(1, 1),
            high=(1, 1), value=float("-inf"),
        )  # fmt: skip
        return self.b.emit("reduce_max", around, dims=(4, 5))

    def plan(self, *results: Value) -> Plan:
        self.b.graph.results = list(results)
        return check(self.b.graph, *self.inputs).plan


def operators(plan: Plan) -> list[str]:
    """The first operator of each step's kernel."""
    names = {ref.name: ref.operators[0] for ref in plan.kernels}
    return [names[getattr(step, "kernel", "")] for step in plan.steps]


def test_a_residual_network_copies_nothing_between_convolutions() -> None:
    net = Net(1, 3, 32, 32)
    x = net.pool(net.relu(net.norm(net.conv(net.x, 16, 7, 2))))
    for outs, stride in ((16, 1), (32, 2)):
        y = net.relu(net.norm(net.conv(x, 16, 1)))
        y = net.relu(net.norm(net.conv(y, 16, 3, stride)))
        y = net.norm(net.conv(y, outs, 1))
        x = net.relu(net.b.emit("add", y, net.norm(net.conv(x, outs, 1, stride))))
    mean = net.b.emit("reduce_sum", x, dims=(2, 3))
    plan = net.plan(x, mean)
    assert operators(plan) == ["conv", "reduce_max", *["conv"] * 8, "reduce_sum", "layout"]
    # Weights, scale and shift of each convolution are made once.
    assert len(plan.prepare) == 3 * 9
    arena = [buffer for buffer in plan.buffers if buffer.kind == "arena"]
    assert len(arena) == 10 and all(buffer.shape[-1] in (16, 32) for buffer in arena)


def test_inverted_bottlenecks_copy_nothing() -> None:
    net = Net(2, 3, 16, 16)
    x = net.relu(net.norm(net.conv(net.x, 24, 3, 2)))
    y = net.relu(net.norm(net.conv(x, 48, 1)))
    y = net.relu(net.norm(net.conv(y, 48, 3, 1, groups=48)))
    x = net.b.emit("add", x, net.norm(net.conv(y, 24, 1)))
    plan = net.plan(net.b.emit("reduce_sum", net.relu(x), dims=(2, 3)))
    assert operators(plan) == ["conv"] * 4 + ["reduce_sum"]


def test_concatenation_and_upsampling_keep_the_layout() -> None:
    net = Net(1, 3, 12, 12)
    fine = net.relu(net.conv(net.x, 16))
    coarse = net.relu(net.conv(fine, 32, 3, 2))
    rows = net.b.emit("floordiv", net.b.emit("iota", dim=0, shape=(12,)), _two(net.b))
    large = net.b.emit("index", coarse, rows, dims=(2,), at=2)
    large = net.b.emit("index", large, rows, dims=(3,), at=3)
    joined = net.b.emit("concat", large, fine, dim=1)
    found = choose_layouts(net.b.graph, _parameters(net.b.graph))
    assert joined in found.values
    last = net.conv(net.relu(net.conv(joined, 16)), 2, 1)
    plan = net.plan(last)
    assert operators(plan).count("conv") == 4
    assert operators(plan)[-1] == "layout"


def _two(b: GraphBuilder) -> Value:
    from kernelmill.core.dtype import I64

    return b.emit("full", value=2, dtype=I64, shape=(12,))


def _parameters(graph: Graph) -> set[Value]:
    return {entry.value for entry in graph.tensor_inputs() if entry.role == "param"}


def test_one_convolution_alone_changes_no_layout() -> None:
    net = Net(1, 16, 8, 8)
    plan = net.plan(net.relu(net.conv(net.x, 16)))
    assert operators(plan) == ["conv"]
    assert not choose_layouts(net.b.graph, _parameters(net.b.graph)).values


def test_where_most_results_are_images_nothing_changes() -> None:
    net = Net(1, 16, 8, 8)
    first = net.conv(net.x, 16)
    second = net.conv(first, 16)
    assert operators(net.plan(first, second)) == ["conv", "conv"]


def test_a_changed_statistic_is_noticed() -> None:
    net = Net(1, 3, 9, 9)
    x = net.relu(net.norm(net.conv(net.x, 16)))
    net.b.graph.results = [net.norm(net.conv(x, 16))]
    run = program(lowered(net.b.graph))
    before = run(*net.inputs)[0]
    assert isinstance(before, Tensor)
    net.inputs[3].mul_(4.0)
    net.inputs[5].add_(1.0)
    changed = run(*net.inputs)[0]
    fresh = program(lowered(net.b.graph))(*[tensor.clone() for tensor in net.inputs])[0]
    assert isinstance(changed, Tensor) and isinstance(fresh, Tensor)
    assert torch.equal(changed, fresh) and not torch.allclose(changed, before)


# ---- schedules ------------------------------------------------------------------------------


def geometry(outs: int, channels: int, size: int, window: int) -> Geometry:
    low = window // 2
    image, ones = (1, size, size), (1, 1, 1)
    return Geometry(
        1,
        1,
        channels,
        outs,
        image,
        image,
        (1, window, window),
        ones,
        ones,
        (0, low, low),
        planar=False,
        direct=True,
        accumulate=F32,
    )


@pytest.mark.parametrize("size", [7, 14, 28, 56])
@pytest.mark.parametrize("window", [1, 3])
def test_the_tiles_of_common_sizes_waste_nothing(size: int, window: int) -> None:
    made = geometry(256, 64, size, window)
    schedule = plan_convolution(made, profile("x86-64-v4"))
    _, rows, columns = schedule.outputs
    assert rows * columns == size * size
    assert columns % schedule.across == 0
    assert schedule.panel_count(made) * schedule.width == 256


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_pixels_that_would_share_a_cache_set_are_a_line_further_apart(dtype: DType) -> None:
    target = profile("x86-64-v4")
    for channels in (64, 512):
        made = replace(geometry(64, channels, 7, 3), accumulate=dtype)
        further = (plan_convolution(made, target).pixel - channels) * dtype.bytes
        assert further == (target.isa.line_bytes if channels == 512 else 0)


def test_a_schedule_depends_on_the_range_of_a_size_and_not_on_its_name() -> None:
    target = profile("x86-64-v4")
    few, many = (
        replace(geometry(64, 64, 56, 3), images=sym("images", 1, most)) for most in (1, None)
    )
    first = [plan_convolution(each, target).work for each in (few, many)]
    assert first[0] < first[1]
    assert plan_convolution(replace(many, images=sym("other", 1)), target).work == first[1]


@pytest.mark.parametrize("channels", [16, 72, 480])
def test_depthwise_convolutions_have_tasks_for_many_threads(channels: int) -> None:
    made = replace(geometry(1, 1, 56, 3), groups=channels, direct=False)
    schedule = plan_convolution(made, profile("x86-64-v4"))
    assert schedule.row_blocks() * schedule.panel_blocks(made) >= 8


def order_of(geometry: Geometry) -> Order:
    schedule = plan_convolution(geometry, profile("x86-64-v4"))
    assert isinstance(schedule, Dense)
    return schedule.order


def test_deep_weights_are_read_in_blocks() -> None:
    deep = order_of(geometry(512, 512, 7, 3))
    assert isinstance(deep, ChannelBlocks) and deep.block < 512
    assert order_of(geometry(64, 64, 56, 3)) == PanelMajor()


def dense(down: int, across: int, order: Order) -> Dense:
    return Dense(
        lanes=8, vectors=2, down=down, across=across, outputs=(1, 6, 5), pixel=32, use_fma=True,
        padded=True, rows=6, order=order,
    )  # fmt: skip


def test_tiles_of_several_rows_have_whole_ones() -> None:
    assert dense(1, 4, PanelMajor()).tiles == 12
    assert dense(2, 5, PanelMajor()).tiles == 3
    with pytest.raises(ValueError, match="parts of rows"):
        dense(2, 4, PanelMajor())
    with pytest.raises(ValueError, match="parts of rows"):
        replace(dense(2, 5, TileMajor()), across=4)


def test_a_block_has_channels() -> None:
    with pytest.raises(ValueError, match="blocks of 0 channels"):
        dense(1, 4, ChannelBlocks(0))


def test_weights_that_few_tiles_share_are_fetched_ahead() -> None:
    target = profile("x86-64-v4")
    assert plan_convolution(geometry(512, 512, 7, 3), target).prefetch_weights
    assert plan_convolution(geometry(512, 2048, 7, 1), target).prefetch_weights
    assert not plan_convolution(geometry(64, 64, 56, 3), target).prefetch_weights
    assert not plan_convolution(geometry(64, 256, 56, 1), target).prefetch_weights


@pytest.mark.parametrize("dims", [(64, 256, 6, 1), (512, 64, 6, 3)], ids=["by tiles", "by panels"])
def test_an_image_that_is_added_is_fetched_while_sums_are_made(dims: tuple[int, ...]) -> None:
    channels, outs, size, window = dims
    b = GraphBuilder("g")
    shapes = (1, channels, size, size), (1, outs, size, size)
    x, y = (b.input(n, F32, s, channels_last(s)) for n, s in zip("xy", shapes, strict=True))
    kernel = (outs, channels, window, window)
    weight = b.input("w", F32, kernel, role=InputRole.PARAM)
    found = b.emit("conv", x, weight, **{**PLAIN, "padding": (window // 2,) * 2})
    b.graph.results = [b.emit("layout", b.emit("add", found, y), strides=channels_last(shapes[1]))]
    arguments = [strided(whole(F32, *shape, low=-2, high=3)) for shape in shapes]
    check(b.graph, *arguments, whole(F32, *kernel, low=-2, high=3))
    made = lowered(b.graph, profile("x86-64-v4"))
    (step,) = made.plan.steps
    kernel_of = made.kernels[step.kernel]
    sizes = [(buffer.elements, buffer.access) for buffer in kernel_of.buffers]
    added = sizes.index((outs * size**2, "in"))
    assert f"prefetch b{added}[" in print_kernel(kernel_of)
    adding = replace(geometry(outs, channels, size, window), adds=True)
    assert order_of(adding) == (TileMajor() if window == 1 else PanelMajor())
    assert order_of(geometry(outs, channels, size, window)) == PanelMajor()


@pytest.mark.parametrize("last", [True, False], ids=["last", "planar"])
def test_the_error_of_a_long_sum_is_that_of_short_chains(last: bool) -> None:
    """2304 equal products: each addition to a chain of them errs to the same side."""
    shapes = (1, 256, 5, 5), (32, 256, 3, 3)
    b = GraphBuilder("g")
    x = b.input("x", F32, shapes[0], channels_last(shapes[0]) if last else None)
    weight = b.input("w", F32, shapes[1], role=InputRole.PARAM)
    found = b.emit("conv", x, weight, **PLAIN)
    if last:
        found = b.emit("layout", b.emit("neg", found), strides=channels_last((1, 32, 3, 3)))
    b.graph.results = [found]
    image, kernel = (torch.full(shape, 0.1) for shape in shapes)
    (result,) = program(lowered(b.graph))(strided(image) if last else image, kernel)
    exact = 2304 * 0.1 * float(image[0, 0, 0, 0])
    assert abs(result[0, 0, 0, 0].abs().item() / exact - 1) < 2e-6
