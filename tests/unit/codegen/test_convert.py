"""`cast` between every two types gives the bits that eager gives; `bitcast` keeps them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from kernelmill.core.dtype import (
    BF16,
    BOOL,
    COMPUTABLE,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    DType,
    to_torch,
)
from kernelmill.core.errors import CodegenError
from kernelmill.kernel import numeric
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import OUTSIDE, Value
from tests.unit.codegen.native import NUMPY, TARGETS, run_map


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """bf16 as its bits."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def samples(dtype: DType) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    if dtype == BOOL:
        return torch.tensor([False, True, True, False])
    if dtype.is_integer:
        info = torch.iinfo(to_torch(dtype))
        edges = [0, 1, 2, info.max, info.max - 1, info.min, info.min + 1, 100, 65, 127, -1, -77]
        wide = torch.randint(-(2**62), 2**62, (300,), generator=generator)
        return torch.cat([torch.tensor(edges), wide, wide >> 30, wide >> 50]).to(to_torch(dtype))
    bits = torch.randint(-(2**63), 2**63 - 1, (4000,), generator=generator)
    edges = [0.0, -0.0, 0.5, -0.5, 1.5, -1.99, 127.5, 128.0, 255.9, 256.0, -1.0, -128.9, -129.0]
    edges += [2.0**k * s for k in (15, 16, 31, 32, 40, 62, 63, 64) for s in (1.0, -1.0, 0.9999999)]
    edges += [float("inf"), float("-inf"), float("nan"), 65504.0, 65519.9, 65520.0, 1e-45, 6e-8]
    edges += [5.9e-8, 2.98e-8, 2.9802322e-08, 6.1e-5, 3.4e38, 3.3961e38, 1e-40, 9.2e-41, 4.6e-41]
    random = {
        "f64": bits.view(torch.float64),
        "f32": bits.view(torch.float32),
        "f16": bits.view(torch.float16),
        "bf16": bits.view(torch.bfloat16),
    }[dtype.name]
    moderate = torch.randn(500, generator=generator, dtype=torch.float64) * 200
    parts = [torch.tensor(edges, dtype=torch.float64), moderate]
    return torch.cat([torch.cat(parts).to(to_torch(dtype)), random])


def cast(source: DType, target_type: DType, lanes: int, level: int) -> None:
    values = samples(source)
    got = run_map(
        lambda builder, x: builder.op("cast", x, dtype=target_type),
        [to_numpy(values)],
        [source],
        target_type,
        lanes,
        TARGETS[level],
    )
    expected = values.to(to_torch(target_type))
    actual = torch.from_numpy(got).view(to_torch(target_type))
    if target_type.is_float:
        nan = expected.isnan()
        assert torch.equal(actual.isnan(), nan)
        actual, expected = actual[~nan], expected[~nan]
    wrong = to_numpy(actual) != to_numpy(expected)
    cases = values[~nan] if target_type.is_float else values
    assert not wrong.any(), (cases[wrong][:5], actual[wrong][:5], expected[wrong][:5])


PAIRS = [pair for pair in itertools.product(COMPUTABLE, COMPUTABLE) if pair[0] != pair[1]]


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("source", "result"), PAIRS, ids=lambda dtype: str(dtype))
def test_cast_equals_eager(source: DType, result: DType, lanes: int) -> None:
    cast(source, result, lanes, max(TARGETS))


@pytest.mark.parametrize("level", [level for level in TARGETS if level < 4])
@pytest.mark.parametrize(
    ("source", "result"),
    [(F32, F16), (F16, F32), (F32, BF16), (BF16, F32), (F64, F16), (F32, I64), (I64, F32)],
    ids=lambda dtype: str(dtype),
)
def test_cast_on_smaller_processors(source: DType, result: DType, level: int) -> None:
    cast(source, result, 8, level)


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("result", [I64, I32, I16, I8, U8], ids=str)
@pytest.mark.parametrize("source", [F64, F32, F16, BF16], ids=str)
@pytest.mark.parametrize("outside", sorted(OUTSIDE))
def test_what_no_integer_holds_becomes_what_the_kernel_says(
    outside: str, source: DType, result: DType, level: int
) -> None:
    values = to_numpy(samples(source))
    got = run_map(
        lambda builder, x: builder.op("cast", x, dtype=result, outside=outside),
        [values], [source], result, 8, TARGETS[level],
    )  # fmt: skip
    with np.errstate(all="ignore"):
        expected = numeric.cast(values, source, result, outside)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("lanes", [1, 3, 4, 12, 16, 32])
def test_any_number_of_lanes_is_truncated_alike(lanes: int, level: int) -> None:
    values = to_numpy(samples(F32))
    for result in (I32, I8):
        got = run_map(
            lambda builder, x, to=result: builder.op("cast", x, dtype=to, outside="lowest"),
            [values], [F32], result, lanes, TARGETS[level],
        )  # fmt: skip
        with np.errstate(all="ignore"):
            expected = numeric.cast(values, F32, result, "lowest")
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("level", TARGETS)
def test_every_half_value_comes_back(level: int) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    for dtype in (F16, BF16):
        array = bits.view(NUMPY[dtype.name])

        def body(builder, x, dtype=dtype):  # type: ignore[no-untyped-def]
            wide = builder.op("cast", x, dtype=F32)
            return builder.op("cast", wide, dtype=dtype)

        got = run_map(body, [array], [dtype], dtype, 16, TARGETS[level]).view(np.uint16)
        values = torch.from_numpy(array).view(to_torch(dtype))
        nan = values.isnan().numpy()
        np.testing.assert_array_equal(got[~nan], bits[~nan])
        assert torch.from_numpy(got).view(to_torch(dtype)).isnan().numpy()[nan].all()


@pytest.mark.parametrize(
    ("source", "result"), [(F32, I32), (I64, F64), (BF16, I16), (I16, F16), (I32, F32)], ids=str
)
def test_bitcast_keeps_the_bits(source: DType, result: DType) -> None:
    values = to_numpy(samples(source))
    got = run_map(
        lambda builder, x: builder.op("bitcast", x, dtype=result), [values], [source], result, 16
    )
    np.testing.assert_array_equal(got.view(np.uint8), values.view(np.uint8))


def test_bitcast_takes_bytes_together_and_apart() -> None:
    values = np.arange(-100, 100, dtype=np.int32) * 1234567

    def apart_and_together(builder: KernelBuilder, x: Value) -> Value:
        bytes = builder.op("bitcast", x, dtype=I8, lanes=4 * x.type.lanes)
        turned = builder.op("not", bytes)
        return builder.op("bitcast", turned, dtype=I32, lanes=x.type.lanes)

    for lanes in (1, 8, 16):
        got = run_map(apart_and_together, [values], [I32], I32, lanes)
        np.testing.assert_array_equal(got, ~values)


def test_bitcast_between_widths_is_refused() -> None:
    with pytest.raises(CodegenError, match="widths differ"):
        run_map(
            lambda builder, x: builder.op("bitcast", x, dtype=I64),
            [np.zeros(4, np.float32)],
            [F32],
            I64,
            4,
        )
