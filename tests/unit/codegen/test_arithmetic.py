"""Every arithmetic, bit and comparison operator on every type, against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernelmill.codegen.code import constant
from kernelmill.core.dtype import BOOL, F32, F64, I8, I16, I32, I64, U8, DType
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value, VType
from tests.unit.codegen.native import NUMPY, TARGETS, run_map

INTEGERS = (I64, I32, I16, I8, U8)
FLOATS = (F64, F32)
LANES = (1, 3, 16)


def samples(dtype: DType) -> np.ndarray:
    """Edge values and random ones."""
    kind = NUMPY[dtype.name]
    if dtype == BOOL:
        return np.array([False, True])
    rng = np.random.default_rng(7)
    if dtype.is_float:
        info = np.finfo(kind)
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 3.0, 1e9]
        edges += [info.max, info.tiny, float(info.smallest_subnormal), -float(info.tiny) / 3]
        return np.concatenate([np.array(edges, kind), rng.normal(size=8).astype(kind)])
    info = np.iinfo(kind)
    edges = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, 5, 63, 31, 8]
    random = rng.integers(info.min, info.max, 8, dtype=kind, endpoint=True)
    return np.concatenate([np.array(edges, kind), np.array([-1, -3]).astype(kind), random])


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    values = samples(dtype)
    left, right = zip(*itertools.product(values, values), strict=True)
    return np.array(left, values.dtype), np.array(right, values.dtype)


def check(got: np.ndarray, expected: np.ndarray) -> None:
    """The same bits, with any NaN as good as another."""
    expected = expected.astype(got.dtype)
    np.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f":
        finite = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(expected[finite]))


def binary(op: str, a: np.ndarray, b: np.ndarray, dtype: DType, lanes: int) -> np.ndarray:
    def body(builder: KernelBuilder, x: Value, y: Value) -> Value:
        return builder.op(op, x, y)

    result = BOOL if op in ("eq", "ne", "lt", "le", "gt", "ge") else dtype
    return run_map(body, [a, b], [dtype, dtype], result, lanes)


def truncated_division(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """C's quotient and remainder in Python integers; 0 where C has none."""
    low = np.iinfo(a.dtype).min
    quotients: list[int] = []
    rests: list[int] = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if y == 0 or (y == -1 and x == low and low < 0):
            quotients.append(0)
            rests.append(0)
            continue
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        quotients.append(quotient)
        rests.append(x - quotient * y)
    return np.array(quotients, a.dtype), np.array(rests, a.dtype)


def shifted(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    out: list[int] = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if op == "shl":
            value = x << y if 0 <= y < bits else 0
        else:
            value = x >> (y if 0 <= y < bits else bits)
        out.append(value & ((1 << bits) - 1))
    return np.array(out, np.uint64).astype(a.dtype)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_add_sub_mul(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    with np.errstate(all="ignore"):
        check(binary("add", a, b, dtype, lanes), a + b)
        check(binary("sub", a, b, dtype, lanes), a - b)
        check(binary("mul", a, b, dtype, lanes), a * b)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_never_traps(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    quotient, rest = truncated_division(a, b)
    check(binary("div", a, b, dtype, lanes), quotient)
    check(binary("rem", a, b, dtype, lanes), rest)


@pytest.mark.parametrize("dtype", [I8, I16, U8], ids=str)
def test_narrow_division_is_exact_everywhere(dtype: DType) -> None:
    kind = NUMPY[dtype.name]
    info = np.iinfo(kind)
    step = 1 if dtype.bits == 8 else 131
    values = np.arange(info.min, info.max + 1, step).astype(kind)
    a, b = (part.ravel() for part in np.meshgrid(values, values))
    small = np.abs(b.astype(np.int64)) <= 300
    a, b = a[small][:200_000], b[small][:200_000]
    quotient, rest = truncated_division(a, b)
    check(binary("div", a, b, dtype, 16), quotient)
    check(binary("rem", a, b, dtype, 16), rest)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_division(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    with np.errstate(all="ignore"):
        check(binary("div", a, b, dtype, lanes), a / b)
        check(binary("rem", a, b, dtype, lanes), np.fmod(a, b))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_min_max_keep_nan(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    got_min, got_max = binary("min", a, b, dtype, lanes), binary("max", a, b, dtype, lanes)
    np.testing.assert_array_equal(got_min, np.minimum(a, b))
    np.testing.assert_array_equal(got_max, np.maximum(a, b))


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_min_max_with_a_literal_are_those_with_a_register(
    dtype: DType, lanes: int, level: int
) -> None:
    values = samples(dtype)
    for op, literal in itertools.product(("min", "max"), (127.0, -2.5, 0.0, -0.0, np.inf, np.nan)):
        number = values.dtype.type(literal)
        got, expected = (
            run_map(body, [values, np.full_like(values, number)], [dtype, dtype], dtype, lanes,
            TARGETS[level])
            for body in (
                lambda b, x, _, op=op, number=float(number): b.op(op, x, number),
                lambda b, x, y, op=op: b.op(op, x, y),
            )
        )  # fmt: skip
        check(got, expected)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, BOOL], ids=str)
def test_compare(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    for op, expected in {
        "eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b,
    }.items():  # fmt: skip
        check(binary(op, a, b, dtype, lanes), expected)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [*INTEGERS, BOOL], ids=str)
def test_bits(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    check(binary("and", a, b, dtype, lanes), a & b)
    check(binary("or", a, b, dtype, lanes), a | b)
    check(binary("xor", a, b, dtype, lanes), a ^ b)
    check(run_map(lambda builder, x: builder.op("not", x), [a], [dtype], dtype, lanes), ~a)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_by_any_count(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    check(binary("shl", a, b, dtype, lanes), shifted("shl", a, b))
    check(binary("shr", a, b, dtype, lanes), shifted("shr", a, b))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_unary(dtype: DType, lanes: int) -> None:
    a = samples(dtype)
    with np.errstate(all="ignore"):
        expected = {
            "neg": -a, "abs": np.abs(a), "sqrt": np.sqrt(a), "floor": np.floor(a),
            "ceil": np.ceil(a), "trunc": np.trunc(a), "round": np.rint(a),
        }  # fmt: skip
    for op, values in expected.items():
        got = run_map(lambda builder, x, op=op: builder.op(op, x), [a], [dtype], dtype, lanes)
        check(got, values)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_unary(dtype: DType, lanes: int) -> None:
    a = samples(dtype)
    with np.errstate(all="ignore"):
        expected = {"neg": -a, "abs": np.abs(a)}
    for op, values in expected.items():
        got = run_map(lambda builder, x, op=op: builder.op(op, x), [a], [dtype], dtype, lanes)
        check(got, values)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_copysign(dtype: DType) -> None:
    a, b = pairs(dtype)
    check(binary("copysign", a, b, dtype, 16), np.copysign(a, b))


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("lanes", LANES)
def test_fma_rounds_once(lanes: int, level: int) -> None:
    target: Isa = TARGETS[level]
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=480).astype(np.float32) for _ in range(2))
    # Half of the sums cancel almost everything: two roundings would be far off there.
    c = np.concatenate([-(a * b)[:240], rng.normal(size=240).astype(np.float32)])
    exact = a.astype(np.float64) * b + c

    def body(builder: KernelBuilder, x: Value, y: Value, z: Value) -> Value:
        return builder.op("fma", x, y, z)

    got = run_map(body, [a, b, c], [F32] * 3, F32, lanes, target)
    check(got[:240], exact[:240].astype(np.float32))
    np.testing.assert_allclose(got, exact, rtol=1e-7)


def test_fma_of_integers_wraps() -> None:
    a, b = pairs(I32)
    got = run_map(lambda builder, x, y: builder.op("fma", x, y, 3), [a, b], [I32, I32], I32, 16)
    with np.errstate(all="ignore"):
        check(got, a * b + np.int32(3))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, BOOL], ids=str)
def test_select(dtype: DType, lanes: int) -> None:
    a, b = pairs(dtype)
    condition = np.arange(len(a)) % 3 == 0

    def body(builder: KernelBuilder, c: Value, x: Value, y: Value) -> Value:
        return builder.op("select", c, x, y)

    got = run_map(body, [condition, a, b], [BOOL, dtype, dtype], dtype, lanes)
    check(got, np.where(condition, a, b))


def test_literals_and_scalars_stand_for_all_lanes() -> None:
    a = samples(F32)

    def body(builder: KernelBuilder, x: Value) -> Value:
        scalar = builder.load("x0", 2, F32)
        scaled = builder.op("mul", scalar, x)
        above = builder.op("gt", x, 0.1)
        return builder.op("select", above, builder.op("add", scaled, 2.5), -1.0)

    got = run_map(body, [a], [F32], F32, 16)
    with np.errstate(all="ignore"):
        check(got, np.where(a > np.float32(0.1), a * a[2] + np.float32(2.5), np.float32(-1.0)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_constants_keep_the_sign_of_zero_whichever_comes_first(dtype: DType) -> None:
    for value in (0.0, -0.0, 0.0):
        for lanes in (1, 4):
            text = constant(VType(dtype, lanes), value)
            assert ("8000000000000000" in text) == (str(value) == "-0.0"), text
