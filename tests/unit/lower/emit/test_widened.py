"""Operands of half types that several tiles read are widened before the loop over products: what is
lowered for AArch64, or for an x86-64 of few registers, run here by code of this machine, gives what
eager does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import Tensor

from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, F16, F32, I8, I32, DType, InputRole
from kernelmill.core.target.dot_units import PAIRS_OF_16, WORDS_OF_16
from kernelmill.core.target.machine import PROFILES, Machine
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.ir import For, Instr, statements_of
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.plan.ir import BufferKind
from tests.compiled import interpreted, lowered, program, whole
from tests.unit.lower.for_tiles import equal
from tests.unit.lower.templates.matmul.test_tiled import product

NEON, V3 = PROFILES["aarch64-neon"], PROFILES["x86-64-v3"]
HALVES = [BF16, F16]


def widening_loops(found: Lowered) -> list[tuple[int, bool]]:
    """Of each innermost loop with products: how many, and whether it widens numbers too."""
    loops: list[tuple[int, bool]] = []
    for kernel in found.kernels.values():
        for loop in statements_of(kernel.body):
            if not isinstance(loop, For) or any(isinstance(each, For) for each in loop.body):
                continue
            words = [each.op for each in statements_of(loop.body) if isinstance(each, Instr)]
            if "fma" in words:
                loops.append((words.count("fma"), "cast" in words))
    return loops


def widened(found: Lowered) -> bool:
    """Whether the largest loops with products read f32 alone."""
    loops = widening_loops(found)
    most = max(count for count, _ in loops)
    return not any(widens for count, widens in loops if count == most)


def dots(found: Lowered) -> set[object]:
    """Names of the dot units that its kernels use."""
    kernels = (statements_of(kernel.body) for kernel in found.kernels.values())
    words = (each for body in kernels for each in body if isinstance(each, Instr))
    return {each.attrs["unit"] for each in words if each.op == "dot"}


def agrees(
    made: Graph, *inputs: Tensor, interpret: bool = False, widens: bool = True,
    machine: Machine = NEON,
) -> None:  # fmt: skip
    found = lowered(made, machine)
    assert widened(found) == widens
    expected = run_graph(made, list(inputs))
    equal(program(found)(*inputs), expected)
    if interpret:
        equal(interpreted(found, inputs), expected)


# ---- convolutions ---------------------------------------------------------------------------


def convolution(
    dtype: DType, image: tuple[Dim, ...], outs: int, window: int, *, last: bool, groups: int = 1,
    stride: int = 1, adds: bool = False, constant: bool = True,
) -> Graph:  # fmt: skip
    """Of an image (n, c, h, w), which with `last` lies channels last, as the result then does; with
    `adds` a tensor like the result is added."""
    b = GraphBuilder("g")
    n, c, h, w = image
    assert isinstance(c, int)
    x = b.input("x", dtype, (n, h, w, c) if last else image)
    x = b.emit("permute", x, dims=(0, 3, 1, 2)) if last else x
    role = InputRole.PARAM if constant else InputRole.USER
    weight = b.input("w", dtype, (outs, c // groups, window, window), role=role)
    around = (window // 2,) * 2
    result = b.emit(
        "conv", x, weight, stride=(stride,) * 2, padding=around, dilation=(1, 1), groups=groups
    )
    if last:
        result = b.emit("permute", result, dims=(0, 2, 3, 1))
    if adds:
        result = b.emit("add", result, b.input("y", dtype, result.shape))
    b.graph.results = [result]
    return b.graph


def arguments(made: Graph, n: int = 1) -> Iterator[Tensor]:
    for value in (entry.value for entry in made.tensor_inputs()):
        shape = (size if isinstance(size, int) else n for size in value.shape)
        yield whole(value.dtype, *shape, low=-2, high=3)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("image", "outs", "window", "groups", "stride", "adds"),
    [
        ((1, 12, 9, 11), 20, 3, 1, 1, False), ((2, 16, 27, 24), 33, 3, 1, 2, False),
        ((1, 8, 12, 12), 24, 1, 1, 1, False), ((1, 32, 10, 9), 48, 3, 2, 1, False),
        ((2, 16, 9, 8), 40, 3, 1, 1, True), ((1, 24, 11, 10), 70, 1, 1, 1, True),
    ],
)  # fmt: skip
def test_channels_last(
    image: tuple[int, ...], outs: int, window: int, groups: int, stride: int, adds: bool,
    dtype: DType,
) -> None:  # fmt: skip
    made = convolution(
        dtype, image, outs, window, last=True, groups=groups, stride=stride, adds=adds
    )
    agrees(made, *arguments(made))


def test_a_panel_that_is_summed_in_blocks_of_channels() -> None:
    made = convolution(BF16, (1, 1024, 14, 14), 16, 3, last=True)
    (kernel,) = (k for k in lowered(made, NEON).kernels.values() if k.type == "Conv")
    inside = [each for each in statements_of(kernel.body) if isinstance(each, For)]
    assert any((loop.stop, loop.step) == (2, 1) for loop in inside), "two blocks of channels"
    agrees(made, *arguments(made))


def test_any_number_of_images() -> None:
    made = convolution(BF16, (sym("s0"), 16, 8, 8), 20, 3, last=True)
    found = lowered(made, NEON)
    assert widened(found)
    for n in (1, 3):
        inputs = list(arguments(made, n))
        equal(program(found)(*inputs), run_graph(made, list(inputs)))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("image", "outs", "window", "constant"),
    [
        ((1, 8, 14, 15), 24, 3, True), ((2, 5, 11, 13), 13, 3, True),
        ((1, 16, 24, 32), 50, 1, True), ((1, 8, 14, 15), 24, 3, False),
        ((2, 5, 11, 13), 13, 3, False),
    ],
)  # fmt: skip
def test_channels_first(
    image: tuple[int, ...], outs: int, window: int, constant: bool, dtype: DType
) -> None:
    made = convolution(dtype, image, outs, window, last=False, constant=constant)
    agrees(made, *arguments(made))


def test_weights_that_every_panel_of_pixels_reads_are_packed_as_f32() -> None:
    for width, dtype in ((15, F32), (1, BF16)):
        made = convolution(BF16, (1, 8, 14, width), 24, 3, last=False)
        (packed,) = (b for b in lowered(made, NEON).plan.buffers if b.kind is BufferKind.PACKED)
        assert packed.dtype == dtype


def test_interpreted_too() -> None:
    for last in (True, False):
        made = convolution(BF16, (1, 8, 6, 8), 12, 3, last=last)
        agrees(made, *arguments(made), interpret=True)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_weights_that_a_load_widens_are_read_as_they_are(dtype: DType) -> None:
    made = convolution(dtype, (1, 64, 12, 12), 64, 3, last=True)
    agrees(made, *arguments(made), widens=dtype == BF16, machine=V3)


def test_what_one_tile_reads_is_widened_there() -> None:
    made = convolution(BF16, (1, 16, 1, 2), 20, 1, last=True)
    agrees(made, *arguments(made), widens=False)


# ---- products -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(72, 250, 770), (197, 100, 260), (30, 770, 768)])
def test_constant_matrices(m: int, k: int, n: int, dtype: DType) -> None:
    made = product(dtype, F32, "b", "b")(m, k, n)
    agrees(made, whole(dtype, m, k), whole(dtype, n, k))


def test_a_deep_panel_is_widened_block_by_block() -> None:
    m, k, n = 192, 17_000, 96
    made = product(BF16, F32, "b", "b")(m, k, n)
    kernel = next(k for k in lowered(made, NEON).kernels.values() if k.type == "MatMul")
    loops = [each for each in statements_of(kernel.body) if isinstance(each, For)]
    assert any(loop.stop == k and isinstance(loop.step, int) and loop.step > 1000 for loop in loops)
    agrees(made, whole(BF16, m, k).sign(), whole(BF16, n, k).sign())


def test_a_constant_left_matrix() -> None:
    made = product(BF16, F32, "", "a")(30, 41, 100)
    agrees(made, whole(BF16, 30, 41), whole(BF16, 41, 100))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(32, 24, 65), (27, 33, 96)])
def test_batches_of_matrices(m: int, k: int, n: int, dtype: DType) -> None:
    b = GraphBuilder("g")
    operands = [b.input(*each) for each in (("x", dtype, (3, m, k)), ("y", dtype, (3, k, n)))]
    b.graph.results = [b.emit("matmul", *operands, dtype=F32)]
    agrees(b.graph, *arguments(b.graph))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(72, 250, 770), (19, 33, 64)])
def test_both_operands_where_registers_are_few(m: int, k: int, n: int, dtype: DType) -> None:
    made = product(dtype, F32, "b", "b")(m, k, n)
    agrees(made, whole(dtype, m, k), whole(dtype, n, k), machine=V3)


def test_any_number_of_rows_where_registers_are_few() -> None:
    made = product(BF16, F32, "b", "b")(sym("s0"), 40, 70)
    found = lowered(made, V3)
    for m in (0, 1, 7, 30):
        inputs = [whole(BF16, m, 40), whole(BF16, 70, 40)]
        equal(program(found)(*inputs), run_graph(made, list(inputs)))


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(72, 252, 100), (19, 36, 64), (97, 64, 37), (40, 17_000, 24)]
)
def test_bytes_are_multiplied_by_halves_of_words(level: str, m: int, k: int, n: int) -> None:
    made = product(I8, I32, "", "b")(m, k, n)
    found = lowered(made, PROFILES[level])
    assert WORDS_OF_16.name in dots(found)
    inputs = [whole(I8, *shape, low=-128, high=128) for shape in ((m, k), (k, n))]
    equal(program(found)(*inputs), run_graph(made, list(inputs)))
    if k < 100:
        equal(interpreted(found, inputs), run_graph(made, list(inputs)))


def test_few_rows_multiply_bytes_as_they_are() -> None:
    found = lowered(product(I8, I32, "", "b")(4, 64, 48), V3)
    assert dots(found) == {PAIRS_OF_16.name}


def test_few_rows_read_weights_as_they_are() -> None:
    for m in (1, 8):
        made = product(BF16, F32, "b", "b")(m, 64, 48)
        agrees(made, whole(BF16, m, 64), whole(BF16, 48, 64), widens=False)


def test_weights_for_any_number_of_rows_are_read_as_they_are() -> None:
    made = product(BF16, F32, "b", "b")(sym("s0"), 64, 48)
    found = lowered(made, NEON)
    assert not widened(found)


def test_a_matrix_of_a_half_type_beside_one_that_is_not() -> None:
    def made(m: int) -> Graph:
        b = GraphBuilder("g")
        x = b.input("x", F32, (m, 40))
        weight: Value = b.input("w", BF16, (70, 40), role=InputRole.PARAM)
        weight = b.emit("permute", b.emit("cast", weight, dtype=F32), dims=(1, 0))
        b.graph.results = [b.emit("matmul", x, weight, dtype=F32)]
        return b.graph

    graph = made(40)
    inputs = list(arguments(graph))
    equal(program(lowered(graph, NEON))(*inputs), run_graph(graph, list(inputs)))
