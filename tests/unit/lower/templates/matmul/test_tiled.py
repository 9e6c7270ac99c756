"""Products lowered for the tile unit give what eager does, on any processor: the unit is emulated.

What is compared is exact: whole numbers, whose sums no order changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, F32, I8, I32, U8, DType, InputRole
from kernelmill.core.target.machine import host, profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from tests.compiled import graph, lowered, program, whole
from tests.unit.lower.for_tiles import ALWAYS, AMX, agrees, equal, texts

Make = Callable[[Dim, Dim, Dim], Graph]


def product(dtype: DType, result: DType, turned: str = "", weight: str = "") -> Make:
    """(m, k) x (k, n); `turned` operands have the other memory order, a `weight` is constant."""

    def made(m: Dim, k: Dim, n: Dim) -> Graph:
        b = GraphBuilder("g")
        operands: list[Value] = []
        for name, shape in (("a", (m, k)), ("b", (k, n))):
            role = InputRole.PARAM if name in weight else InputRole.USER
            lying = shape[::-1] if name in turned else shape
            value = b.input(name, dtype, lying, role=role)
            operands.append(b.emit("permute", value, dims=(1, 0)) if name in turned else value)
        b.graph.results = [b.emit("matmul", *operands, dtype=result)]
        return b.graph

    return made


def numbers(dtype: DType, *shape: int, turned: bool = False) -> Tensor:
    shape = shape[::-1] if turned else shape
    low, high = (-4, 5) if dtype == BF16 else (0, 256) if dtype == U8 else (-128, 128)
    return whole(dtype, *shape, low=low, high=high)


def run(
    dtype: DType, turned: str, weight: str, m: int, k: int, n: int, interpret: bool = False
) -> None:
    made = product(dtype, F32 if dtype == BF16 else I32 if dtype == I8 else U8, turned, weight)
    a = numbers(dtype, m, k, turned="a" in turned)
    agrees(made(m, k, n), a, numbers(dtype, k, n, turned="b" in turned), interpret=interpret)


def sampled() -> Iterator[tuple[str, str, int, int, int]]:
    rng = np.random.default_rng(16)
    for turned in ("", "a", "b", "ab"):
        for weight in ("", "a", "b"):
            for _ in range(3):
                m, n, k = (
                    int(rng.integers(low, high)) for low, high in ((2, 71), (2, 71), (1, 131))
                )
                yield turned, weight, m, k, n


@pytest.mark.parametrize(("turned", "weight", "m", "k", "n"), list(sampled()))
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_sizes_memory_orders_and_constants(
    dtype: DType, turned: str, weight: str, m: int, k: int, n: int
) -> None:
    run(dtype, turned, weight, m, k, n)


@pytest.mark.parametrize(("m", "k", "n"), [(2, 1, 2), (17, 33, 18), (33, 64, 70), (16, 130, 16)])
@pytest.mark.parametrize("turned", ["", "ab"])
def test_the_interpreter_agrees(turned: str, m: int, k: int, n: int) -> None:
    run(BF16, turned, "", m, k, n, interpret=True)
    run(I8, turned, "b", m, k, n, interpret=True)


@pytest.mark.parametrize(("m", "k", "n"), [(3, 0, 4), (0, 3, 4), (3, 4, 0)])
def test_sizes_of_nothing(m: int, k: int, n: int) -> None:
    made = product(BF16, F32)(m, k, n)
    inputs = whole(BF16, m, k), whole(BF16, k, n)
    equal(program(lowered(made, ALWAYS), host())(*inputs), run_graph(made, list(inputs)))


def test_unsigned_bytes() -> None:
    """Their sums wrap to bytes, as eager's do."""
    run(U8, "", "b", 20, 70, 30)
    run(U8, "a", "", 33, 5, 17, interpret=True)


@pytest.mark.parametrize("sizes", [(2, 1, 2), (9, 41, 17), (65, 8, 33), (48, 100, 31), (3, 0, 2)])
@pytest.mark.parametrize("turned", ["", "b"])
def test_symbolic_sizes(sizes: tuple[int, int, int], turned: str) -> None:
    m, k, n = sizes
    for dtype in (BF16, I8):
        made = product(dtype, F32 if dtype == BF16 else I32, turned)(
            sym("s0"), sym("s1"), sym("s2")
        )
        a, b = numbers(dtype, m, k), numbers(dtype, k, n, turned="b" in turned)
        agrees(made, a, b)


@pytest.mark.parametrize("m", [2, 15, 16, 17, 31, 33, 70])
def test_a_symbolic_number_of_rows_and_a_weight(m: int) -> None:
    made = product(BF16, F32, "b", "b")(sym("s0", 2), 96, 80)
    agrees(made, whole(BF16, m, 96), whole(BF16, 80, 96))


def with_epilogue(b: GraphBuilder, x: Value, y: Value, bias: Value) -> Value:
    sums = b.emit("matmul", x, y, dtype=F32)
    sums = b.emit("add", sums, b.emit("expand", bias, shape=sums.shape))
    return b.emit("erf", sums)


def test_batches_and_an_epilogue_with_a_library_call() -> None:
    made = graph(with_epilogue, (BF16, (3, 35, 40)), (BF16, (3, 40, 50)), (F32, (50,)))
    inputs = whole(BF16, 3, 35, 40), whole(BF16, 3, 40, 50), whole(F32, 50)
    assert len(agrees(made, *inputs, interpret=True).plan.steps) == 1


def test_operands_that_are_cast() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        casts = (b.emit("cast", value, dtype=BF16) for value in (x, y))
        return b.emit("matmul", *casts, dtype=BF16)

    made = graph(build, (F32, (39, 24)), (F32, (24, 40)))
    agrees(made, torch.randint(-4, 5, (39, 24)).float(), torch.randint(-4, 5, (24, 40)).float())


def test_sums_of_a_deep_product_grow_in_scratch() -> None:
    """In blocks along k, of which the last is a smaller one."""
    made = product(BF16, F32, "b", "b")(70, 1500, 40)
    found = agrees(made, whole(BF16, 70, 1500), whole(BF16, 40, 1500))
    assert " to min(" in texts(found) or "step 12" in texts(found)
    agrees(product(BF16, F32)(70, 1500, 40), whole(BF16, 70, 1500), whole(BF16, 1500, 40))


def test_rows_on_cache_lines_are_read_where_they_lie() -> None:
    made = product(BF16, F32, "b", "b")(64, 96, 40)
    found = agrees(made, whole(BF16, 64, 96), whole(BF16, 40, 96), interpret=True)
    assert "tile_load b1" in texts(found) or "tile_load b0" in texts(found)
    assert "stride 96" in texts(found)


def test_a_slice_of_rows_off_the_lines_is_copied() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        part = b.emit("slice", x, dim=1, start=1, end=97, step=1)
        return b.emit("matmul", part, y, dtype=F32)

    made = graph(build, (BF16, (64, 128)), (BF16, (96, 40)))
    found = agrees(made, whole(BF16, 64, 128), whole(BF16, 96, 40))
    assert "stride 128" not in texts(found)


def test_few_rows_wait_for_memory_and_get_no_tiles() -> None:
    for m, tiled in ((1, False), (2, False), (8, True), (128, True)):
        made = product(BF16, F32, "b", "b")(m, 768, 768)
        assert ("tile_dot" in texts(lowered(made, AMX))) == tiled, m


def test_bf16_in_vectors_is_not_preferred_where_it_is_slower() -> None:
    for target, preferred in ((AMX, False), (profile("x86-64-v4-bf16"), True)):
        made = product(BF16, F32, "b", "b")(2, 768, 768)
        assert ("bf16_pairs" in texts(lowered(made, target))) == preferred
