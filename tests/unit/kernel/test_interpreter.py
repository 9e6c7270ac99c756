"""The kernel interpreter: numbers worked out by hand, and torch where it has the same function."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

from kernelmill.core.dim import Dim, Sym, sym
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
from kernelmill.core.target.dot_units import BF16_PAIRS, BFDOT, TILE_BF16, TILE_BYTES, VNNI
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import MATH, Instr, Value, VType
from kernelmill.kernel.numeric import Array, apply, cast, dot, literal, numpy_dtype, tile_dot
from kernelmill.kernel.text import parse_kernel
from kernelmill.kernel.verifier import verify_kernel


def compute(op: str, result: DType, *args: Array, lanes: int | None = None, **attrs: int) -> Array:
    """One operator on arrays that hold one lane an element."""
    types = [_dtype(arg) for arg in args]
    pairs = zip(args, types, strict=True)
    registers = tuple(Value("x", VType(dtype, len(arg))) for arg, dtype in pairs)
    lanes = max([1, *map(len, args)]) if lanes is None else lanes
    instr = Instr(Value("r", VType(result, lanes)), op, registers, attrs)
    with np.errstate(all="ignore"):
        return apply(instr, args, types)


def _dtype(array: Array) -> DType:
    return next(dtype for dtype in COMPUTABLE if numpy_dtype(dtype) == array.dtype)


def run(
    text: str, tasks: range | None = None, dims: dict[str, int] | None = None, **buffers: Array
):
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    run_kernel(kernel, buffers, dims, tasks)


# ---- operators ------------------------------------------------------------------------------


def test_integers_wrap_and_never_trap() -> None:
    a = np.array([127, -128, 7, -7, 5, -128], np.int8)
    b = np.array([1, -1, 2, 2, 0, -1], np.int8)
    assert compute("add", I8, a, b).tolist() == [-128, 127, 9, -5, 5, 127]
    assert compute("div", I8, a, b).tolist() == [127, 0, 3, -3, 0, 0]
    assert compute("rem", I8, a, b).tolist() == [0, 0, 1, -1, 0, 0]
    assert compute("neg", I8, a).tolist() == [-127, -128, -7, 7, -5, -128]
    assert compute("abs", I8, a).tolist() == [127, -128, 7, 7, 5, -128]


def test_shifts_by_the_width_or_more() -> None:
    a, b = np.array([-8, -8, -8, 8], np.int16), np.array([1, 16, -1, 15], np.int16)
    assert compute("shl", I16, a, b).tolist() == [-16, 0, 0, 0]
    assert compute("shr", I16, a, b).tolist() == [-4, -1, -1, 0]
    unsigned = np.array([200, 200], np.uint8), np.array([1, 8], np.uint8)
    assert compute("shr", U8, *unsigned).tolist() == [100, 0]


def test_minimum_and_maximum_give_nan_when_either_is() -> None:
    a, b = np.array([np.nan, 1.0, 2.0], np.float32), np.array([1.0, np.nan, 3.0], np.float32)
    np.testing.assert_array_equal(compute("max", F32, a, b), [np.nan, np.nan, 3.0])
    np.testing.assert_array_equal(compute("min", F32, a, b), [np.nan, np.nan, 2.0])
    assert compute("max", BOOL, np.array([True]), np.array([False])).tolist() == [True]


def test_comparisons_with_nan() -> None:
    a, b = np.array([np.nan, 1.0]), np.array([1.0, 1.0])
    assert compute("ne", BOOL, a, b).tolist() == [True, False]
    for op in ("eq", "le", "ge"):
        assert compute(op, BOOL, a, b).tolist() == [False, True]


def test_rounding_is_to_nearest_even() -> None:
    assert compute("round", F64, np.array([0.5, 1.5, 2.5, -0.5])).tolist() == [0, 2, 2, 0]


def test_fma_rounds_once() -> None:
    # In f32 the product 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11; the sum keeps the 2^-24.
    a = np.array([1 + 2.0**-12], np.float32)
    c = np.array([-(1 + 2.0**-11)], np.float32)
    assert compute("fma", F32, a, a, c)[0] == 2.0**-24
    assert compute("fma", F32, a, a, np.array([np.inf], np.float32))[0] == np.inf
    # The sum is just below the middle of two f32 neighbours: in f64 it would fall on it.
    a, b = (np.array([2.0**-12 * (1 + sign * 2.0**-23)], np.float32) for sign in (1, -1))
    near = compute("fma", F32, a, b, np.array([1 + 2.0**-23], np.float32))
    assert near[0] == np.float32(1 + 2.0**-23)
    wide = np.array([1 + 2.0**-30])
    assert compute("fma", F64, wide, wide, np.array([-(1 + 2.0**-29)]))[0] == 2.0**-60
    assert compute("fma", F64, np.array([1e300]), np.array([1e300]), np.array([0.0]))[0] == np.inf
    assert compute("fma", I32, *(np.array([n], np.int32) for n in (3, 4, 5)))[0] == 17


def test_math_is_the_rounded_f64_function() -> None:
    x = np.linspace(0.05, 0.95, 19, dtype=np.float32)
    for op in sorted(MATH - {"nextafter"}):
        args = [x, x[::-1].copy()][: 2 if op in ("pow", "atan2", "hypot") else 1]
        args = [arg + 1 for arg in args] if op == "acosh" else args
        wide = getattr(torch, op)(*(torch.from_numpy(arg.astype(np.float64)) for arg in args))
        np.testing.assert_array_equal(compute(op, F32, *args), wide.float().numpy(), op)
    one = np.ones(1, np.float32)
    assert compute("nextafter", F32, one, one * 2)[0] == np.float32(1 + 2.0**-23)


FLOATS = [0.0, -0.0, 1.5, -2.75, 3e9, -3e9, 1e20, 300.7, -1.2, 65520.0, 1e-8, 6e-8, 1e-41]
SPECIAL = [float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("target", COMPUTABLE, ids=str)
@pytest.mark.parametrize("source", COMPUTABLE, ids=str)
def test_casts_are_torch_s(source: DType, target: DType) -> None:
    values = torch.tensor(FLOATS + SPECIAL, dtype=torch.float64)
    if not source.is_float:
        values = torch.tensor([0, 1, -1, 100, 127, 128, 255, 70000, 2**40 + 1, -(2**31)])
    elif target.is_integer:
        # Out of the range of i32 (i64 for u8) torch's answer depends on the instructions it finds.
        values = values[(values.abs() < 2.0**31)]
    if source.is_float and target.is_integer and target.bits < 32:
        values = values[values.abs() < 2.0 ** (target.bits - 1)].abs()
    x = values.to(to_torch(source))
    with np.errstate(all="ignore"):
        got = cast(_array(x), source, target)
    expected = _array(x.to(to_torch(target)))
    if target == BF16:
        got, expected = _as_float(got), _as_float(expected)
    np.testing.assert_array_equal(got, expected)


def _array(tensor: torch.Tensor) -> Array:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def _as_float(bits: Array) -> Array:
    return cast(bits, BF16, F32)


def test_floats_out_of_range_become_the_nearest_integer_where_it_says_so() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300.7, -1.5], np.float32)
    low, high = -(2**31), 2**31 - 1
    with np.errstate(all="ignore"):
        got = cast(x, F32, I32, "nearest")
        assert got.tolist() == [0, high, low, high, low, 300, -1]
        # Narrower types take the low bits: of an i32, but u8 of an i64.
        assert cast(x, F32, I8, "nearest").tolist() == [0, -1, 0, -1, 0, 44, -1]
        wide = cast(x, F32, I64, "nearest")
        assert wide.tolist()[:4] == [0, 2**63 - 1, -(2**63), 3_000_000_000]
        np.testing.assert_array_equal(cast(x, F32, U8, "nearest"), wide.astype(np.uint8))


def test_floats_out_of_range_become_the_lowest_integer() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, 1e19], np.float32)
    with np.errstate(all="ignore"):
        assert cast(x, F32, I64).tolist() == [-(2**63)] * 3 + [3_000_000_000, -(2**63)]
        assert cast(x, F32, I32).tolist() == [-(2**31)] * 5
        assert cast(x, F32, I16).tolist() == [0] * 5
        assert cast(x, F32, U8).tolist() == [0, 0, 0, 3_000_000_000 % 256, 0]
        assert cast(np.array([300.0, -1.0]), F64, U8).tolist() == [44, 255]
        assert cast(np.array([300.0, -129.0]), F64, I8).tolist() == [44, 127]


def test_literals_of_half_types_round() -> None:
    assert literal(1.00390625, BF16).tolist() == [0x3F80]
    assert literal(1.01171875, BF16).tolist() == [0x3F82]
    assert literal(-0.0, F16).view(np.uint16).tolist() == [0x8000]


def test_vectors() -> None:
    x = np.array([1, 2, 3, 4, 5], np.int32)
    assert compute("extract", I32, x, np.array([3])).tolist()[0] == 4
    assert compute("slice", I32, x, start=1, lanes=3).tolist() == [2, 3, 4]
    assert compute("concat2", I32, x, x[:2], lanes=7).tolist() == [1, 2, 3, 4, 5, 1, 2]
    assert compute("iota", U8, lanes=4).tolist() == [0, 1, 2, 3]
    assert compute("lane_mask", BOOL, np.array([2]), lanes=4).tolist() == [True, True, False, False]
    assert compute("bitcast", I32, np.array([1.0], np.float32)).tolist() == [0x3F800000]
    assert compute("bitcast", I8, np.array([-2], np.int32), lanes=4).tolist() == [-2, -1, -1, -1]
    assert compute("interleave", I32, x[:2], x[3:], half=1, lanes=2).tolist() == [2, 5]
    with pytest.raises(IndexError, match="lane 5 of 5"):
        compute("extract", I32, x, np.array([5]))


def test_dot_of_bytes_takes_unsigned_and_signed_bytes() -> None:
    a = np.array([[255, 1, 0, 0], [0, 0, 2, 3]], np.uint8).view(np.int32).reshape(-1)
    b = np.array([[-128, 5, 9, 9], [9, 9, -1, 127]], np.int8).view(np.int32).reshape(-1)
    assert dot(VNNI, a, b, np.array([10, -10], np.int32)).tolist() == [-32625, 369]


def halves(*pairs: tuple[float, float]) -> np.ndarray:
    """Words of two bf16 numbers: the lower half, the upper half."""
    return (
        (np.array(pairs, np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.int32)[:, 0]
    )


def test_bf16_pairs_add_the_upper_product_first_and_round_between() -> None:
    a, b = halves((1.0, 2.0**24)), halves((1.0, 1.0))
    assert dot(BF16_PAIRS, a, b, np.array([1.0], np.float32)).tolist() == [2.0**24]
    assert dot(BF16_PAIRS, a, b, np.array([-(2.0**24)], np.float32)).tolist() == [1.0]


def test_bf16_pairs_take_denormals_for_zeros() -> None:
    a, b = halves((1e-39, -1e-30), (3.0, 0.0)), halves((1e30, 1e-30), (2.0, 5.0))
    got = dot(BF16_PAIRS, a, b, np.array([-0.0, 1e-40], np.float32))
    assert got.tolist() == [0.0, 6.0]


def test_a_small_result_is_zero_where_24_bits_do_not_round_it_up() -> None:
    one = halves((0.0, 1.0))
    sums = np.array([2.0**-125 - 2.0**-149], np.float32)
    for upper, expected in ((2.0**-126, 0.0), (0.0, sums[0])):
        assert dot(BF16_PAIRS, one, halves((0.0, -upper)), sums).tolist() == [expected]
    # 2^-126 less a quarter and less half of its last bit.
    for small, expected in ((2.0**-151, 2.0**-126), (2.0**-150, 0.0)):
        a, b = halves((0.0, small * 2.0**60)), halves((0.0, -(2.0**-60)))
        assert dot(BF16_PAIRS, a, b, np.array([2.0**-126], np.float32)).tolist() == [expected]


def to_odd(exact: Fraction) -> float:
    """The f32 of 24 bits towards zero, its last bit set where that is not exact."""
    if exact == 0:
        return 0.0
    power = math.floor(math.log2(abs(exact)))
    unit = Fraction(2) ** (power - 23)
    whole, rest = divmod(abs(exact), unit)
    return math.copysign(float((whole | bool(rest)) * unit), exact)


def test_bfdot_adds_the_products_and_then_the_sum_each_to_odd() -> None:
    rng = np.random.default_rng(6)
    numbers = rng.integers(-255, 256, (200, 4)) * 2.0 ** rng.integers(-20, 20, (200, 4))
    sums = (rng.integers(-(2**24), 2**24, 200) * 2.0 ** rng.integers(-40, 10, 200)).astype("f4")
    a, b = halves(*numbers[:, :2]), halves(*numbers[:, 2:])
    got = dot(BFDOT, a, b, sums)
    for (a0, a1, b0, b1), total, found in zip(numbers, sums, got, strict=True):
        pair = to_odd(Fraction(a0) * Fraction(b0) + Fraction(a1) * Fraction(b1))
        assert found == to_odd(Fraction(float(total)) + Fraction(pair))


def test_bfdot_of_more_than_there_are_numbers_is_infinite() -> None:
    most = np.array([3.4028235e38], np.float32)
    # A quarter, then all, of the last bit's value too much.
    for small, expected in ((2.0**101, most[0]), (2.0**104, np.inf)):
        with np.errstate(over="ignore"):
            got = dot(BFDOT, halves((0.0, small)), halves((0.0, 1.0)), most)
        assert got.tolist() == [expected]
    zeros = dot(BFDOT, halves((-0.0, -0.0)), halves((1.0, 1.0)), np.array([-0.0], np.float32))
    assert np.signbit(zeros).all()


def test_a_tile_adds_even_and_odd_products_apart() -> None:
    big = 2.0**24
    # Even products: 2^24, 1, -2^24, of which the 1 is lost; odd ones: 1, 1, 1.
    a = np.array([[big, 1, 1, 1, -big, 1]], np.float32)
    ones = np.ones((3, 4), np.float32)
    got = tile_dot(TILE_BF16, as_bf16(a), as_bf16(ones), np.full((1, 2), 0.5, np.float32))
    assert got.tolist() == [[3.5, 3.5]]


def test_tiles_of_bytes_pair_neighbours_along_k() -> None:
    rng = np.random.default_rng(5)
    for unit in TILE_BYTES:
        types = [numpy_dtype(dtype) for dtype in (unit.a, unit.b)]
        a, b = (
            rng.integers(-128, 256, shape).astype(t)
            for shape, t in zip([(3, 8), (8, 5)], types, strict=True)
        )
        words = b.reshape(2, 4, 5).transpose(0, 2, 1).reshape(2, 20)
        c = rng.integers(-9, 9, (3, 5), dtype=np.int32)
        expected = a.astype(np.int32) @ b.astype(np.int32) + c
        np.testing.assert_array_equal(tile_dot(unit, a, words, c), expected)


def as_bf16(x: np.ndarray) -> np.ndarray:
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def test_reductions_fold_the_upper_half_onto_the_lower() -> None:
    # In this order nothing is lost: (big + -big) first, 1 + 1 next.
    big = np.float32(2.0**30)
    x = np.array([big, 1, 7, -big, 1], np.float32)
    assert compute("reduce_add", F32, x)[0] == 9.0 + 0.0
    assert compute("reduce_max", F32, np.array([1.0, np.nan, 3.0], np.float32)).tolist()[0] != 3.0
    bits = np.array([6, 3, 7], np.uint8)
    assert compute("reduce_and", U8, bits)[0] == 2
    assert compute("reduce_or", U8, bits)[0] == 7
    assert compute("reduce_mul", U8, bits)[0] == 126


# ---- statements -----------------------------------------------------------------------------


def test_strided_and_masked_access() -> None:
    x, y = np.arange(10, dtype=np.float32), np.full(10, -1, np.float32)
    run(
        """
        kernel k(x: f32[10] in, y: f32[10] out) tasks(1) {
          %n: i64 = index(<2>)
          %m: boolx3 = lane_mask(%n)
          %0: f32x3 = load x[8] mask %m stride -4
          store y[1], %0 stride 2
          store y[0], %0 mask %m stride 8
        }
        """,
        x=x,
        y=y,
    )
    assert y.tolist() == [8, 8, -1, 4, -1, 0, -1, -1, 4, -1]


def test_the_last_of_several_lanes_stays() -> None:
    y = np.zeros(4, np.int64)
    run(
        """
        kernel k(y: i64[4] inout, o: i32[3] in) tasks(1) {
          %o: i32x3 = load o[0]
          %v: i64x3 = iota()
          scatter y[1 + %o], %v
          %g: i64x3 = gather y[1 + %o]
          store y[1], %g
        }
        """,
        y=y,
        o=np.array([2, -1, 2], np.int32),
    )
    assert y.tolist() == [1, 2, 1, 2]


def test_loops_carry_values_and_may_have_no_pass() -> None:
    y = np.zeros(3, np.int64)
    text = """
        kernel k(y: i64[3] out) dims(n) tasks(1) {
          %last, %count = for i = 3 to n step 2 carry (%a: i64 = -1, %c: i64 = 0) {
            %i: i64 = index(<i>)
            %d: i64 = add(%c, 1)
            yield %i, %d
          }
          let p = %count in [0, 2]
          store y[p], %last
        }
    """
    run(text, dims={"n": 3}, y=y)
    assert y.tolist() == [-1, 0, 0]
    run(text, dims={"n": 7}, y=y)
    assert y.tolist() == [-1, 0, 5]


def test_branches() -> None:
    y = np.zeros(4, np.float32)
    run(
        """
        kernel k(y: f32[4] out) tasks(4) {
          %t: i64 = index(<task>)
          %c: bool = lt(%t, 2)
          %r: f32 = if %c { yield 1.5 } else { %f: f32 = cast(%t) yield %f }
          if %c { store y[task], %r } else { %n: f32 = neg(%r) store y[task], %n }
        }
        """,
        y=y,
    )
    assert y.tolist() == [1.5, 1.5, -2, -3]


def test_scratch_is_typed_by_each_access_and_starts_unset() -> None:
    y = np.zeros(2, np.uint32).astype(np.int32)
    run(
        """
        kernel k(y: i32[2] out) tasks(1) scratch(8) {
          %0: i32 = load scratch[1]
          store y[0], %0
          %1: i16x2 = iota()
          store scratch[2], %1
          %2: i32 = load scratch[1]
          store y[1], %2
        }
        """,
        y=y,
    )
    assert y[0] != 0 and y[1] == 1 << 16


def test_a_failed_check_marks_the_status() -> None:
    text = """
        kernel k(status: i64[1] out, x: i64[2] in) tasks(1) {
          %x: i64x2 = load x[0]
          %c: boolx2 = lt(%x, 5)
          %d: boolx2 = check(%c) {code=3}
        }
    """
    status = np.zeros(1, np.int64)
    run(text, status=status, x=np.array([1, 2]))
    assert status[0] == 0
    run(text, status=status, x=np.array([1, 7]))
    assert status[0] == 3


def test_only_the_given_tasks_run() -> None:
    y = np.zeros(5, np.int8)
    text = "kernel k(y: i8[5] out) tasks(5) { %0: i8 = splat(1) store y[task], %0 }"
    run(text, tasks=range(1, 3), y=y)
    assert y.tolist() == [0, 1, 1, 0, 0]


COPY = """
kernel copy(x: bf16[4] in, y: bf16[n] out) dims(n) tasks(1) {
  %0: bf16x4 = load x[n-4]
  store y[0], %0
}
"""


def test_bf16_buffers_are_bits() -> None:
    y = np.zeros(4, np.uint16)
    run(COPY, dims={"n": 4}, x=np.arange(4, dtype=np.uint16), y=y)
    assert y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [5, 3])
def test_access_outside_of_a_buffer_raises(n: int) -> None:
    buffers = {"x": np.zeros(9, np.uint16), "y": np.zeros(9, np.uint16)}
    place = 4 if n == 5 else -1
    with pytest.raises(IndexError, match=f"copy, task 0: `%0.*` at element {place} of 4"):
        run(COPY, dims={"n": n}, **buffers)


ACCESSES: dict[str, Callable[[KernelBuilder, Dim], object]] = {
    "load": lambda b, at: b.load("x", at, F32),
    "vector": lambda b, at: b.load("x", at - 3, F32, 4),
    "apart": lambda b, at: b.load("x", at - 6, F32, 3, stride=3),
    "masked": lambda b, at: b.load("x", at - 1, F32, 4, b.op("lane_mask", 2, lanes=4)),
    "store": lambda b, at: b.store("x", at - 3, b.op("splat", 1.0, dtype=F32, lanes=4)),
    "tile": lambda b, at: b.tile_load("x", at - 7, VType(F32, 2, 2), 6),
    "stored tile": lambda b, at: b.tile_store("x", at - 7, b.tile_zero(VType(F32, 2, 2)), 6),
}
"""Accesses that end with element `at`."""


@pytest.mark.parametrize("name", ACCESSES)
@pytest.mark.parametrize("n", [8, 9, 24])
def test_every_access_is_held_against_the_length_at_the_sizes_of_the_call(
    name: str, n: int
) -> None:
    size = sym("n", 8)
    for beyond in (0, 1):
        b = KernelBuilder("access", "Map")
        b.kernel.dims = [Sym("n", 8)]
        b.buffer("x", F32, size, "inout")
        ACCESSES[name](b, size - 1 + beyond)
        memory = {"x": np.zeros(64, np.float32)}
        if not beyond:
            run_kernel(b.kernel, memory, {"n": n})
            continue
        with pytest.raises(IndexError, match=f"access, task 0: `.*` at element {n} of {n}"):
            run_kernel(b.kernel, memory, {"n": n})


def test_arguments_that_do_not_fit() -> None:
    good = np.zeros(4, np.uint16)
    with pytest.raises(ValueError, match="kernel copy: no value for the dims n"):
        run(COPY, x=good, y=good)
    with pytest.raises(ValueError, match=r"buffer y is a 1-d array of 4 bf16$"):
        run(COPY, dims={"n": 4}, x=good)
    with pytest.raises(ValueError, match="buffer x is a 1-d array of 4 bf16"):
        run(COPY, dims={"n": 4}, x=good.astype(np.float32), y=good)
    with pytest.raises(ValueError, match="1-d array of 8 bf16, not of 4"):
        run(COPY, dims={"n": 8}, x=good, y=good)
