"""Results that are written over what they are computed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F32, DType, InputRole
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.driver.lowered import Lowered
from kernelmill.plan.ir import Launch
from tests.compiled import check, graph, lowered


def overwriting(made: Lowered) -> int:
    """Launches that write into the memory of an arena buffer that they read."""
    plan = made.plan
    found = 0
    for step in plan.steps:
        assert isinstance(step, Launch)
        offsets = [plan.buffers[n].offset for n in step.buffers if plan.buffers[n].kind == "arena"]
        found += len(set(offsets)) < len(offsets)
    return found


def residuals(b: GraphBuilder, x: Value, *weights: Value) -> Value:
    """x + x w, again and again."""
    for weight in weights:
        x = b.emit("add", x, b.emit("matmul", x, weight))
    return x


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_sum_cannot_go_where_another_tile_still_reads(dtype: DType) -> None:
    """Each row of the product reads the whole of x: it must not be written over."""
    made = graph(residuals, (dtype, (6, 8)), (dtype, (8, 8)), (dtype, (8, 8)), (dtype, (8, 8)))
    args = [torch.randint(-2, 3, shape).float() for shape in ((6, 8), (8, 8), (8, 8), (8, 8))]
    args = [arg.to(torch.bfloat16) if dtype == BF16 else arg for arg in args]
    result = check(made, *args, interpret=True)
    assert overwriting(result) == 0


def branches(b: GraphBuilder, x: Value, *weights: Value) -> Value:
    """x + relu(x v) w, again and again: the products read the branch and add x."""
    for first, second in zip(weights[::2], weights[1::2], strict=True):
        branch = b.emit("maximum", b.emit("matmul", x, first), b.emit("neg", x))
        x = b.emit("add", x, b.emit("matmul", branch, second))
    return x


SQUARES = [(F32, (8, 8))] * 6


def test_a_residual_stream_has_one_place() -> None:
    made = graph(branches, (F32, (6, 8)), *SQUARES)
    result = check(made, torch.randn(6, 8), *(torch.randn(8, 8) / 3 for _ in SQUARES),
                   interpret=True)  # fmt: skip
    # The first sum adds the argument, the last is a result.
    assert overwriting(result) >= 1


def test_for_every_size() -> None:
    n = sym("n", 2, 64)
    b = GraphBuilder("g")
    b.dim_input(n)
    x = b.input("x", F32, (n, 16))
    b.graph.results = [b.emit("exp", b.emit("tanh", b.emit("neg", x)))]
    assert overwriting(check(b.graph, 5, torch.randn(5, 16), separate=True, interpret=True)) == 1


def convolved(keeping: bool) -> Graph:
    b = GraphBuilder("g")
    image = b.input("x", F32, (2, 16, 5, 5))
    weights = [b.input(f"w{i}", F32, (16, 16, 1, 1), role=InputRole.PARAM) for i in range(6)]
    x = b.emit("tanh", image)
    first = x
    plain = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    for down, up in zip(weights[::2], weights[1::2], strict=True):
        x = b.emit("add", x, b.emit("conv", b.emit("conv", x, down, **plain), up, **plain))
    b.graph.results = [b.emit("reduce_sum", b.emit("mul", x, first) if keeping else x, dims=(2, 3))]
    return b.graph


def test_images_go_where_their_residuals_were() -> None:
    weights = [torch.randn(16, 16, 1, 1) / 4 for _ in range(6)]
    image = torch.randn(2, 16, 5, 5)
    dying = overwriting(check(convolved(False), image, *weights, interpret=True))
    kept = overwriting(check(convolved(True), image, *weights, interpret=True))
    assert dying > kept > 0


def count(build: Callable[..., Value | Sequence[Value]]) -> int:
    """Overwriting launches where every operator is a kernel of its own."""
    made = graph(build, (F32, (6, 6)), (F32, (6, 6)))
    args = torch.randn(6, 6), torch.randn(6, 6)
    check(made, *args, separate=True, interpret=True)
    return overwriting(lowered(made, separate=True))


def test_operators_by_themselves() -> None:
    def chain(b: GraphBuilder, x: Value, y: Value) -> Value:
        return b.emit("exp", b.emit("tanh", b.emit("mul", x, y)))

    assert count(chain) == 1  # the product is written over by tanh; exp is a result

    def turned(b: GraphBuilder, x: Value, y: Value) -> Value:
        product = b.emit("mul", x, y)
        return b.emit("exp", b.emit("add", product, b.emit("permute", product, dims=(1, 0))))

    assert count(turned) == 0

    def used_again(b: GraphBuilder, x: Value, y: Value) -> Value:
        product = b.emit("mul", x, y)
        return b.emit("add", b.emit("exp", b.emit("tanh", product)), product)

    assert count(used_again) == 1  # exp over tanh, not tanh over the product
