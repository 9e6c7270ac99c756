"""Scattered writes against torch's scatter_reduce, index_put and index_add."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import Dim, as_sym, linear_part, sym
from kernelmill.core.dtype import BOOL, I64, from_torch
from kernelmill.core.target.machine import Machine, host, profile
from kernelmill.graph.ir import Combine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import STATUS, Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.templates.scatter.template import (
    Dims,
    ScatterSpec,
    ScatterTarget,
    emit_scatter,
    plan_scatter,
)
from tests.unit.lower.launched import (
    Launched,
    address,
    assert_margins_untouched,
    elements,
    interpret,
    surrounded,
)  # fmt: skip

REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


class Scatter:
    """index_put (`window` False) or torch.scatter (`window` True: indices differ along it)."""

    def __init__(
        self, x: Tensor, indices: Sequence[Tensor], source: Tensor, axes: tuple[int, ...],
        mode: Combine, shared: bool, shape: Dims | None = None, space: Dims | None = None,
        target: Machine | None = None,
    ) -> None:  # fmt: skip
        dtype = from_torch(x.dtype)
        assert dtype is not None
        if shared:
            window = tuple(n for axis, n in enumerate(shape or x.shape) if axis not in axes)
            space = space or tuple(indices[0].shape)
        else:
            window = tuple(n for axis, n in enumerate(indices[0].shape) if axis not in axes)
            space = (indices[0].shape[axes[0]],)

        def mixed(i: Dims, w: Dims) -> Dims:
            return (*w[: axes[0]], *i, *w[axes[0] :])

        def load_indices(b: KernelBuilder, i: Dims, w: Dims) -> list[Value]:
            assert shared == (w == ()) or not window
            at = i if shared else mixed(i, w)
            return [b.load(f"i{n}", address(at, t.stride()), I64) for n, t in enumerate(indices)]

        def update(b: KernelBuilder, i: Dims, w: Dims, lane: Lane | None) -> Value:
            place: Dim = address(mixed(i, w), source.stride())
            count, mask, stride = 1, None, 1
            if lane is not None:
                linear = linear_part(place, lane.symbol.name)
                assert linear is not None
                (stride, place), count, mask = linear, lane.count, lane.mask
            value = b.load("s", place, dtype, count, mask, stride)
            return value if dtype == BOOL else b.op("cast", value, dtype=dtype.compute)

        into = ScatterTarget("x", dtype, shape or tuple(x.shape), x.stride())
        spec = ScatterSpec(into, axes, space, window, load_indices, update, mode, shared, check=3)
        self.schedule = plan_scatter(spec, target or host())
        builder = KernelBuilder("scatter", "Scatter", self.schedule.tasks)
        builder.buffer("x", dtype, elements(x), "inout")
        builder.buffer("s", dtype, elements(source), "in")
        for n, tensor in enumerate(indices):
            builder.buffer(f"i{n}", I64, elements(tensor), "in")
        builder.buffer(STATUS, I64, 1, "inout")
        sizes = {s.name: s for s in map(as_sym, (*into.shape, *space)) if s is not None}
        builder.kernel.dims += sizes.values()
        emit_scatter(builder, spec, self.schedule)
        self.kernel = Launched(builder.kernel, target)
        self.status = torch.zeros(1, dtype=torch.int64)

    def __call__(
        self, x: Tensor, indices: Sequence[Tensor], source: Tensor, **sizes: int
    ) -> Tensor:
        result = surrounded(x)
        tensors = {"x": result, "s": source, STATUS: self.status}
        tensors |= {f"i{n}": tensor for n, tensor in enumerate(indices)}
        self.kernel(tensors, sizes)
        if x.numel() <= 1000:
            interpreted = surrounded(x)
            interpret(self.kernel.kernel, tensors | {"x": interpreted}, sizes)
            assert_same(interpreted, result)
        assert_margins_untouched(result)
        return result


def sample(shape: Sequence[int], dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return surrounded(torch.rand(shape, generator=generator) < 0.5)
    if dtype.is_floating_point:
        return surrounded(torch.randn(shape, generator=generator).to(dtype))
    return surrounded(torch.randint(-9, 9, shape, generator=generator).to(dtype))


def positions(shape: Sequence[int], size: int, seed: int = 1) -> Tensor:
    """Random positions, some of them counted from the end."""
    generator = torch.Generator().manual_seed(seed)
    return surrounded(torch.randint(-size, size, shape, generator=generator))


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def one_by_one(
    x: Tensor, indices: Sequence[Tensor], source: Tensor, axis: int, mode: Combine
) -> Tensor:
    """index_put as a sequential loop: what duplicates must come to."""
    result = x.clone()
    moved, sources = result.movedim(axis, 0), source
    for place in torch.cartesian_prod(*map(torch.arange, indices[0].shape)).reshape(
        -1, indices[0].dim()
    ):
        at = tuple(place.tolist())
        row = moved[int(indices[0][at])]
        update = sources[(*(slice(None),) * axis, *at)]
        if mode is Combine.SET:
            row.copy_(update)
        elif mode in (Combine.MAX, Combine.MIN):
            row.copy_(
                torch.maximum(row, update) if mode is Combine.MAX else torch.minimum(row, update)
            )
        else:
            row.copy_(row + update if mode is Combine.ADD else row * update)
    return result


@pytest.mark.parametrize("mode", Combine)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_index_put_along_one_axis(dtype: torch.dtype, axis: int, mode: Combine) -> None:
    shape = [7, 12, 50]
    x, index = sample(shape, dtype), positions((3, 4), shape[axis])
    source = sample([*shape[:axis], 3, 4, *shape[axis + 1 :]], dtype, seed=2)
    result = Scatter(x, [index], source, (axis,), mode, shared=True)(x, [index], source)
    assert_same(result, one_by_one(x, [index], source, axis, mode))


@pytest.mark.parametrize("mode", [Combine.SET, Combine.ADD])
def test_index_put_with_several_indices(mode: Combine) -> None:
    x = sample((6, 5, 40))
    # No place twice, as eager leaves open which update comes last.
    flat = torch.randperm(30, generator=torch.Generator().manual_seed(0))[:12]
    rows, columns = surrounded(flat // 5), surrounded(flat % 5 - 5)
    source = sample((12, 40), seed=2)
    scatter = Scatter(x, [rows, columns], source, (0, 1), mode, shared=True)
    expected = x.index_put((rows, columns), source, accumulate=mode is Combine.ADD)
    assert_same(scatter(x, [rows, columns], source), expected)


def test_index_put_of_all_axes() -> None:
    x, index = sample((20,)), positions((33,), 20)
    source = sample((33,), seed=2)
    expected = x.index_put((index,), source, accumulate=True)
    scatter = Scatter(x, [index], source, (0,), Combine.ADD, shared=True)
    assert_same(scatter(x, [index], source), expected)


@pytest.mark.parametrize("mode", Combine)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_scatter(dtype: torch.dtype, axis: int, mode: Combine) -> None:
    x = sample((7, 9, 11), dtype)
    index = positions((5, 6, 8), x.shape[axis]) % x.shape[axis]
    source = sample((6, 7, 10), dtype, seed=2)
    if mode is Combine.SET:
        expected = x.scatter(axis, index, source)
    else:
        expected = x.scatter_reduce(axis, index, source, REDUCE[mode])
    result = Scatter(x, [index], source, (axis,), mode, shared=False)(x, [index], source)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


def test_nan_wins_in_max_and_min() -> None:
    x, index = sample((4, 20)), torch.tensor([1, 1, 2])
    source = sample((3, 20), seed=2)
    source[0, 3] = x[2, 5] = float("nan")
    for mode in (Combine.MAX, Combine.MIN):
        result = Scatter(x, [index], source, (0,), mode, shared=True)(x, [index], source)
        assert_same(result, one_by_one(x, [index], source, 0, mode))


@pytest.mark.parametrize("mode", [Combine.MAX, Combine.MIN])
def test_of_two_zeros_the_one_that_is_there_stays(mode: Combine) -> None:
    x = torch.tensor([[0.0, -0.0, -0.0, 0.0, 1.0, 0.0, -1.0]] * 5)
    source = torch.tensor([[-0.0, 0.0, -0.0, 0.0, -0.0, -1.0, 0.0]] * 5)
    index = torch.arange(7).expand(5, 7).contiguous()
    expected = x.scatter_reduce(1, index, source, REDUCE[mode])
    result = Scatter(x, [index], source, (1,), mode, shared=False)(x, [index], source)
    assert torch.equal(result, expected)
    assert torch.equal(torch.signbit(result), torch.signbit(expected))


@pytest.mark.parametrize("mode", [Combine.SET, Combine.ADD, Combine.MUL])
def test_bool(mode: Combine) -> None:
    x, index = sample((9, 33), torch.bool), positions((4,), 9)
    source = sample((4, 33), torch.bool, seed=2)
    result = Scatter(x, [index], source, (0,), mode, shared=True)(x, [index], source)
    assert_same(result, one_by_one(x, [index], source, 0, mode))


@pytest.mark.parametrize("level", [2, 3])
def test_narrow_vectors(level: int) -> None:
    x, index = sample((9, 33)), positions((4,), 9)
    source = sample((4, 33), seed=2)
    scatter = Scatter(
        x, [index], source, (0,), Combine.ADD, shared=True, target=profile(f"x86-64-v{level}")
    )
    assert_same(scatter(x, [index], source), one_by_one(x, [index], source, 0, Combine.ADD))


@pytest.mark.parametrize("bad", [9, -10, 1 << 62])
@pytest.mark.parametrize("shared", [True, False])
def test_an_index_out_of_range_is_reported_and_left_out(shared: bool, bad: int) -> None:
    x, source = sample((9, 33)), sample((3, 33), seed=2)
    index = torch.tensor([2, bad, 4])
    if not shared:
        index = index[:, None].expand(3, 33).contiguous()
    scatter = Scatter(x, [index], source, (0,), Combine.ADD, shared=shared)
    result = scatter(x, [index], source)
    expected = x.clone()
    expected[2] += source[0]
    expected[4] += source[2]
    assert_same(result, expected)
    assert scatter.status.item() == 3


def test_indices_in_range_report_nothing() -> None:
    x, source, index = sample((9, 33)), sample((3, 33), seed=2), torch.tensor([0, -9, 8])
    scatter = Scatter(x, [index], source, (0,), Combine.SET, shared=True)
    scatter(x, [index], source)
    assert scatter.status.item() == 0


def test_one_program_serves_all_sizes() -> None:
    rows, count = sym("s0"), sym("s1")
    x, index, source = sample((5, 24)), positions((4,), 5), sample((4, 24), seed=2)
    scatter = Scatter(x, [index], source, (0,), Combine.ADD, True, (rows, 24), (count,))
    for m, n in ((1, 1), (100, 7), (3, 50), (4, 0)):
        x, index, source = sample((m, 24)), positions((n,), m), sample((n, 24), seed=2)
        result = scatter(x, [index], source, s0=m, s1=n)
        assert_same(result, x.index_put((index,), source, accumulate=True))
    assert scatter.status.item() == 0


def test_a_row_is_shared_out_over_tasks() -> None:
    x, index, source = sample((5, 4096)), positions((4,), 5), sample((4, 4096), seed=2)
    schedule = Scatter(x, [index], source, (0,), Combine.ADD, shared=True).schedule
    assert schedule.lanes > 1
    assert schedule.tasks == 8
