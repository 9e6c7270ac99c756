"""Every mathematical function of kernels, in f32 within 2 ulp over the whole range.

The references are torch's float64 functions, which are themselves held to mpmath here. `worst` and
`sweep` serve tools that look at more values, up to every one of the 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from kernelmill.core.dtype import F32, F64, DType
from kernelmill.core.target.isa import Isa, host_isa
from kernelmill.kernel.ir import MATH, MATH_BINARY
from tests.unit.codegen.native import TARGETS, Native, map_kernel, run_map

BINARY = sorted(MATH_BINARY - {"nextafter"})  # which has no rounding to measure
UNARY = sorted(MATH - MATH_BINARY)
LIMIT = 2.0
CHUNK = 1 << 20


def reference(op: str, *arguments: Tensor) -> Tensor:
    """The function in float64."""
    function: Callable[..., Tensor] = getattr(torch, op)
    return function(*(argument.double() for argument in arguments))


def ulp_errors(got: Tensor, exact: Tensor) -> Tensor:
    """How far f32 results are from float64 ones, in units of the correctly rounded result's ulp.

    Infinity counts as one ulp beyond the largest number; NaN where none belongs as infinitely far.
    """
    rounded = exact.float()
    largest = torch.finfo(torch.float32).max
    exponent = torch.frexp(rounded.double())[1]
    unit = torch.ldexp(torch.ones_like(exact), torch.clamp(exponent - 24, min=-149))
    unit = torch.where(rounded.isfinite(), unit, 2.0**104)
    limit = torch.tensor(largest + 2.0**104, dtype=torch.float64)
    value = torch.clamp(got.double(), -limit, limit)
    errors = (value - torch.clamp(exact, -limit, limit)).abs() / unit
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    return torch.where(same, 0.0, torch.nan_to_num(errors, nan=float("inf")))


@dataclass(frozen=True)
class Worst:
    """The largest error that was seen, and where."""

    ulp: float
    arguments: tuple[float, ...]
    got: float
    exact: float


def compare(op: str, arguments: list[np.ndarray], got: np.ndarray) -> Worst:
    """The worst of these results; AssertionError for a zero of the wrong sign."""
    tensors = [torch.from_numpy(argument) for argument in arguments]
    exact = reference(op, *tensors)
    result = torch.from_numpy(got)
    zeros = (result == 0) & (exact == 0) & (result.signbit() != exact.signbit())
    assert not zeros.any(), (op, [tensor[zeros][:4] for tensor in tensors])
    errors = ulp_errors(result, exact)
    at = int(errors.argmax())
    values = tuple(float(tensor[at]) for tensor in tensors)
    return Worst(float(errors[at]), values, float(result[at]), float(exact[at]))


def sweep(op: str, target: Isa, step: int = 1) -> Iterator[Worst]:
    """The worst of each run of values, over every `step`-th of the 2^32 bit patterns."""
    native = Native(map_kernel(lambda b, x: b.op(op, x), [F32], F32, 16, CHUNK), target)
    for start in range(0, 1 << 32, CHUNK * step):
        bits = np.arange(start, start + CHUNK * step, step, dtype=np.uint64) & 0xFFFFFFFF
        x, y = bits.astype(np.uint32).view(np.float32), np.zeros(CHUNK, np.float32)
        native({"x0": x, "y": y})
        yield compare(op, [x], y)


def exhaustive(op: str, target: Isa | None = None, step: int = 1) -> Worst:
    """The worst over every `step`-th f32. All of them take minutes."""
    return max(sweep(op, target or host_isa(), step), key=lambda worst: worst.ulp)


SPECIAL = np.array(
    "0 1 2 0.5 3 10 1e-45 1e-40 1.1754944e-38 3.4028235e38 inf nan 1.5 2.5 1.0000001 0.99999994 "
    "16777217 8388609 88.72284 88.72283 89 1e10 -87.33654 -103.97208 -103.97207 -104 128 127.99999 "
    "-149 -150 -126.5 3e18 0.6 0.9 4 0.35 32768 32770 1e18 2e19 1.4142135 0.70710677 2.4048254 "
    "1e36".split(),
    np.float32,
)


def samples(random: int) -> np.ndarray:
    """Every bf16 number, special values of both signs, random bit patterns and moderate numbers."""
    rng = np.random.default_rng(11)
    short = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    bits = rng.integers(0, 1 << 32, random, np.uint64).astype(np.uint32).view(np.float32)
    moderate = (rng.normal(size=random // 2) * 4).astype(np.float32)
    near = (1 + rng.normal(size=random // 4) * 1e-3).astype(np.float32)
    return np.concatenate([SPECIAL, -SPECIAL, short, bits, moderate, near])


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("op", UNARY)
def test_unary_within_two_ulp(op: str, level: int) -> None:
    x = samples(1 << 17)
    got = run_map(lambda b, v: b.op(op, v), [x], [F32], F32, 16, TARGETS[level])
    worst = compare(op, [x], got)
    assert worst.ulp <= LIMIT, worst


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("op", BINARY)
def test_binary_within_two_ulp(op: str, level: int) -> None:
    rng = np.random.default_rng(5)
    edges = np.concatenate([SPECIAL, -SPECIAL])
    a, b = (part.ravel() for part in np.meshgrid(edges, edges))
    bits = rng.integers(0, 1 << 32, (2, 1 << 16), np.uint64).astype(np.uint32).view(np.float32)
    wide = np.exp(rng.uniform(-87, 88, 1 << 16)).astype(np.float32)
    # Exponents that bring a power anywhere from the smallest denormal to the overflow.
    scale = (rng.uniform(-104, 89, 1 << 16) / np.log(wide.astype(np.float64))).astype(np.float32)
    moderate = (rng.normal(size=(2, 1 << 15)) * 3).astype(np.float32)
    x = np.concatenate([a, bits[0], wide, abs(moderate[0])])
    y = np.concatenate([b, bits[1], scale, moderate[1]])
    got = run_map(lambda q, v, w: q.op(op, v, w), [x, y], [F32, F32], F32, 16, TARGETS[level])
    worst = compare(op, [x, y], got)
    assert worst.ulp <= LIMIT, worst


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_nextafter_is_exact(dtype: DType) -> None:
    kind = np.float32 if dtype == F32 else np.float64
    edges = np.concatenate([SPECIAL, -SPECIAL]).astype(kind)
    x, y = (part.ravel() for part in np.meshgrid(edges, edges))
    got = run_map(lambda q, v, w: q.op("nextafter", v, w), [x, y], [dtype, dtype], dtype, 16)
    with np.errstate(all="ignore"):
        expected = np.nextafter(x, y)
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("op", UNARY)
def test_a_value_does_not_depend_on_the_lanes(op: str) -> None:
    x = samples(256)[:2048]
    for target in TARGETS.values():
        results = [
            run_map(lambda b, v: b.op(op, v), [x], [F32], F32, lanes, target).view(np.uint32)
            for lanes in (1, 5, 8, 16, 32)
        ]
        numbers = ~np.isnan(results[0].view(np.float32))
        for other in results[1:]:
            np.testing.assert_array_equal(other[numbers], results[0][numbers])
            assert np.isnan(other.view(np.float32)[~numbers]).all()


MPMATH: dict[str, Callable[..., mpmath.mpf]] = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.power(2, x), "expm1": mpmath.expm1,
    "log": mpmath.log, "log1p": mpmath.log1p, "log2": lambda x: mpmath.log(x, 2),
    "log10": mpmath.log10, "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan,
    "asin": mpmath.asin, "acos": mpmath.acos, "atan": mpmath.atan, "sinh": mpmath.sinh,
    "cosh": mpmath.cosh, "tanh": mpmath.tanh, "asinh": mpmath.asinh, "acosh": mpmath.acosh,
    "atanh": mpmath.atanh, "erf": mpmath.erf, "erfc": mpmath.erfc, "erfinv": mpmath.erfinv,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))), "digamma": mpmath.digamma,
    "i0": lambda x: mpmath.besseli(0, x),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}  # fmt: skip

DOMAINS = {
    "log": (1e-30, 1e30), "log1p": (-0.9999, 1e9), "log2": (1e-30, 1e30), "rsqrt": (1e-9, 1e9),
    "log10": (1e-30, 1e30), "asin": (-1, 1), "acos": (-1, 1), "acosh": (1, 50),
    "atanh": (-0.9999, 0.9999), "erfinv": (-0.9999999999, 0.9999999999), "erf": (-6, 6),
    "erfc": (-6, 26), "lgamma": (-4.5, 60), "digamma": (-9.3, 60), "tanh": (-20, 20),
}  # fmt: skip


def numbers_in_domain(op: str, count: int) -> np.ndarray:
    low, high = DOMAINS.get(op, (-30.0, 30.0))
    rng = np.random.default_rng(2)
    return np.concatenate([rng.uniform(low, high, count), rng.uniform(max(low, -2), 2, count)])


@pytest.mark.parametrize("op", UNARY)
def test_f64_against_many_digits(op: str) -> None:
    low, high = DOMAINS.get(op, (-30.0, 30.0))
    x = np.clip(numbers_in_domain(op, 64), low, high)
    got = run_map(lambda b, v: b.op(op, v), [x], [F64], F64, 8)
    with mpmath.workdps(40):
        exact = [MPMATH[op](mpmath.mpf(float(value))) for value in x]
        # Near a zero of lgamma and digamma only the absolute error is small, as it is in eager.
        floor = 1.0 if op in ("lgamma", "digamma") else 0.0
        errors = [
            abs(mpmath.mpf(float(value)) - true) / max(abs(true), floor, mpmath.mpf("1e-300"))
            for value, true in zip(got, exact, strict=True)
        ]
    worst = int(np.argmax([float(error) for error in errors]))
    assert errors[worst] < 2e-15, (x[worst], got[worst], exact[worst])


@pytest.mark.parametrize("op", [*UNARY, *BINARY])
def test_f64_edges_are_those_of_eager(op: str) -> None:
    x = np.concatenate([SPECIAL, -SPECIAL]).astype(np.float64)
    x = np.concatenate([x, [1e300, -1e300, 5e-324, -5e-324]])
    arguments = [x] if op in UNARY else [part.ravel() for part in np.meshgrid(x, x)]
    got = run_map(lambda b, *v: b.op(op, *v), arguments, [F64] * len(arguments), F64, 8)
    expected = reference(op, *(torch.from_numpy(argument) for argument in arguments)).numpy()
    if op == "log1p" and not host_isa().has_vector_math:
        # torch's vector function makes zeros of the least numbers, the C library's does not.
        expected = np.where(np.abs(x) == 5e-324, x, expected)
    # torch loses digits of digamma next to the poles.
    np.testing.assert_allclose(got, expected, rtol=1e-10 if op == "digamma" else 1e-13, atol=0)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("op", UNARY)
def test_references_hold_against_many_digits(op: str) -> None:
    x = numbers_in_domain(op, 24).astype(np.float32)
    low, high = DOMAINS.get(op, (-30.0, 30.0))
    x = np.clip(x, np.float32(low) * 0.999, np.float32(high) * 0.999)
    if low == 1:
        x = np.maximum(x, 1)
    found = reference(op, torch.from_numpy(x)).numpy()
    with mpmath.workdps(40):
        exact = np.array([float(MPMATH[op](mpmath.mpf(float(value)))) for value in x])
    np.testing.assert_allclose(found, exact, rtol=1e-9)
