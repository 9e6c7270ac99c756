"""Running sums and products against torch.cumsum and torch.cumprod: equal to the last bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import Dim, as_sym, linear_part, sym
from kernelmill.core.dtype import from_torch
from kernelmill.core.target.machine import Machine, host, profile
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.templates.scan.template import Dims, ScanSpec, emit_scan, plan_scan
from tests.unit.lower.launched import (
    Launched,
    address,
    assert_margins_untouched,
    elements,
    interpret,
    surrounded,
)  # fmt: skip

SHAPES = [(5,), (1000,), (3, 7), (130, 33), (9, 50, 20), (2, 3, 4, 5), (1, 1), (4, 0, 3), (0, 5)]


class Scan:
    """A compiled scan of tensors with these strides."""

    def __init__(
        self, x: Tensor, axis: int, op: str, shape: Dims | None = None,
        target: Machine | None = None,
    ) -> None:  # fmt: skip
        dtype = from_torch(x.dtype)
        assert dtype is not None

        def place(index: Dims, lane: Lane | None) -> tuple[Dim, Dim]:
            linear = address(index, x.stride())
            if lane is None:
                return 1, linear
            found = linear_part(linear, lane.symbol.name)
            assert found is not None
            return found

        def load(b: KernelBuilder, index: Dims, lane: Lane | None) -> Value:
            stride, base = place(index, lane)
            count, mask = (1, None) if lane is None else (lane.count, lane.mask)
            value = b.load("x", base, dtype, count, mask, stride)
            return b.op("cast", value, dtype=dtype.compute)

        def store(b: KernelBuilder, index: Dims, lane: Lane | None, value: Value) -> None:
            stride, base = place(index, lane)
            mask = None if lane is None else lane.mask
            b.store("y", base, b.op("cast", value, dtype=dtype), mask, stride)

        spec = ScanSpec(shape or tuple(x.shape), axis, op, dtype, load, store)
        self.schedule = plan_scan(spec, target or host())
        builder = KernelBuilder("scan", "Cumsum", self.schedule.tasks)
        builder.buffer("x", dtype, elements(x), "in")
        builder.buffer("y", dtype, elements(x), "out")
        builder.kernel.dims += [s for s in map(as_sym, spec.shape) if s is not None]
        emit_scan(builder, spec, self.schedule)
        self.kernel = Launched(builder.kernel, target)

    def __call__(self, x: Tensor, **sizes: int) -> Tensor:
        y = surrounded(x)
        self.kernel({"x": x, "y": y}, sizes)
        if x.numel() <= 500:
            interpreted = surrounded(x)
            interpret(self.kernel.kernel, {"x": x, "y": interpreted}, sizes)
            assert_same(interpreted, y)
        assert_margins_untouched(y)
        return y


def sample(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    if dtype.is_floating_point:
        return surrounded((torch.randn(shape, generator=generator) * 0.2 + 1).to(dtype))
    return surrounded(torch.randint(-3, 9, shape, generator=generator).to(dtype))


def eager(op: str, x: Tensor, axis: int) -> Tensor:
    function = torch.cumsum if op == "add" else torch.cumprod
    return function(x, axis, dtype=x.dtype)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("op", ["add", "mul"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_axis(shape: tuple[int, ...], op: str) -> None:
    x = sample(shape, torch.float32)
    for axis in range(len(shape)):
        assert_same(Scan(x, axis, op)(x), eager(op, x, axis))


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8],
    ids=str,
)
@pytest.mark.parametrize("op", ["add", "mul"])
def test_dtypes(dtype: torch.dtype, op: str) -> None:
    x = sample((40, 300, 21), dtype)
    for axis in range(3):
        assert_same(Scan(x, axis, op)(x), eager(op, x, axis))


def test_narrow_vectors() -> None:
    x = sample((30, 45), torch.float32)
    for level in (2, 3):
        for axis in (0, 1):
            assert_same(
                Scan(x, axis, "add", target=profile(f"x86-64-v{level}"))(x), eager("add", x, axis)
            )


def test_transposed_memory() -> None:
    x = surrounded(sample((30, 45), torch.float32).t())
    for axis in (0, 1):
        assert_same(Scan(x, axis, "add")(x), eager("add", x, axis))


def test_nan_and_infinity_stay() -> None:
    x = sample((6, 8), torch.float32)
    x[2, 3], x[4, 5] = float("nan"), float("inf")
    for axis in (0, 1):
        assert_same(Scan(x, axis, "add")(x), eager("add", x, axis))


def test_one_program_serves_all_lengths() -> None:
    rows, width = sym("s0"), 24
    for axis in (0, 1):
        scan = Scan(sample((4, width), torch.float32), axis, "add", (rows, width))
        for length in (0, 1, 3, 1000):
            x = sample((length, width), torch.float32)
            assert_same(scan(x, s0=length), eager("add", x, axis))


def test_rows_are_shared_out_over_tasks() -> None:
    scan = Scan(sample((4096, 64), torch.float32), 1, "add")
    assert scan.schedule.tasks == 32
