"""What parameters decide in few elements is computed by kernels for all sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.driver.kernels import KernelCache
from kernelmill.lower.driver.lowered import Lowered, NewKernel
from kernelmill.lower.driver.program import lower_graph
from kernelmill.plan.ir import Launch

WIDTHS = (24, 40, 7)


def scaled(widths: Sequence[int], rows: int = 4) -> Graph:
    """Images times 1 / sqrt(variance + 1), for each width."""
    builder = GraphBuilder("scaled")
    one = builder.emit("full", shape=(), value=1.0, dtype=F32)

    def over(value: Value, shape: tuple[int, ...]) -> Value:
        return builder.emit("expand", value, shape=shape)

    for width in widths:
        x = builder.input(f"x{width}", F32, (rows, width))
        variance = builder.input(f"v{width}", F32, (width,), role=InputRole.PARAM)
        scale = builder.emit("rsqrt", builder.emit("add", variance, over(one, (width,))))
        wide = over(builder.emit("reshape", scale, shape=(1, width)), (rows, width))
        builder.graph.results.append(builder.emit("mul", x, wide))
    return builder.graph


def packing(lowered: Lowered) -> list[tuple[Launch, Kernel]]:
    return [(launch, lowered.kernels[launch.kernel]) for launch in lowered.plan.prepare]


def test_one_kernel_computes_them_for_all_widths() -> None:
    made = packing(lower_graph(scaled(WIDTHS), host()))
    assert len({kernel.name for _, kernel in made}) == 1
    assert [launch.dims for launch, _ in made] == [(width,) for width in WIDTHS]


def test_a_width_of_one_has_a_kernel_without_sizes() -> None:
    (made,) = packing(lower_graph(scaled([1]), host()))
    assert made[1].dims == [] and made[0].dims == ()


@pytest.mark.parametrize(("width", "general"), [(2**16, True), (2**16 + 1, False)])
def test_many_elements_have_a_kernel_of_their_own(width: int, general: bool) -> None:
    for _, kernel in packing(lower_graph(scaled([width], rows=2), host())):
        assert bool(kernel.dims) == general


def test_their_kernel_is_told_once_like_the_others() -> None:
    told: list[NewKernel] = []
    lowered = lower_graph(scaled(WIDTHS), host(), announce=told.append)
    assert [new.kernel.name for new in told] == list(lowered.kernels)
    assert [new.ref for new in told] == list(lowered.plan.kernels)
    first = lowered.plan.prepare[0].kernel
    (shapes,) = (new.shapes for new in told if new.kernel.name == first)
    assert shapes == ((WIDTHS[0],),) * len(shapes)


def test_graphs_that_share_kernels_lower_them_once() -> None:
    cache = KernelCache()
    first = packing(lower_graph(scaled([24]), host(), cache=cache))
    second = packing(lower_graph(scaled([40]), host(), cache=cache))
    assert len(cache.general) == 1
    assert first[0][1] is second[0][1]
