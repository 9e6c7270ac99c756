"""Errors against float64 beside eager's: long sums must not lose digits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelmill import get_backend
from kernelmill.lower.emit.microkernel import CHAIN

ROUNDING = 2.0**-24
"""Half a unit in the last place of a float32 in [1, 2)."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("depth", [256, 1000, 3072, 8192])
def test_products_lose_no_more_than_chains_of_bounded_length_do(
    rows: int, depth: int, dynamic: bool
) -> None:
    """The error of random terms grows with the root of a chain's length; eager's is not asked.

    Term i of a chain adds a rounding error of variance at most (ROUNDING * its sum)**2 / 3, and
    the square of its sum is i times a term's on average: n terms in chains of c, whose results are
    one more chain, come to (c + n / c) / 6 times (ROUNDING * the root of the terms' squares)**2.
    One chain of 1000 terms is already above what is allowed here.
    """
    torch.manual_seed(depth)
    linear = torch.nn.Linear(depth, 96, bias=False).requires_grad_(False)
    x = torch.randn(rows, depth)
    weight = linear.weight.double().t()
    exact = x.double() @ weight
    scale = (x.double().square() @ weight.square()).sqrt() * ROUNDING
    torch._dynamo.reset()
    compiled = torch.compile(linear, backend=get_backend(), dynamic=dynamic)

    def error(result: torch.Tensor) -> float:
        return float(((result - exact) / scale).square().mean().sqrt())

    chain = min(depth, CHAIN + CHAIN // 2)
    allowed = ((chain + depth / chain) / 6) ** 0.5
    assert error(compiled(x)) <= allowed
    if depth >= 1000:
        assert error(_one_chain(x, linear.weight)) > allowed


def _one_chain(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x @ weight.t(), each sum in the order of its terms."""
    total = torch.zeros(x.shape[0], weight.shape[0])
    for k in range(x.shape[1]):
        total = torch.addcmul(total, x[:, k, None], weight[:, k])
    return total


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x, to: x.to(to).sum(0), (4096, 40)),
        (lambda x, to: x.to(to).sum((0, 1)), (64, 63, 40)),
        (lambda x, to: x.to(to).sum((0, 2)), (64, 24, 48)),
        (lambda x, to: x.to(to).mean(0), (5001, 37)),
        (lambda x, to: x.to(to).var(0), (4096, 40)),
        (lambda x, to: x.to(to).sum(1), (3, 40000)),
    ],
)
def test_sums_lose_at_most_four_times_what_eager_does(
    function: Callable[[torch.Tensor, torch.dtype], torch.Tensor],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    dynamic: bool,
) -> None:
    """Root mean squares of errors. Eager adds in cascades of four levels; one chain of 4096 terms
    is off by 10 times as much."""
    torch.manual_seed(shape[0])
    x = torch.randn(shape, dtype=dtype)
    exact = function(x, torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=get_backend(), dynamic=dynamic)

    def error(result: torch.Tensor) -> float:
        return float((result - exact).square().mean().sqrt())

    assert error(compiled(x, torch.float32)) <= 4 * error(function(x, torch.float32))


def _rows(size: int) -> torch.Tensor:
    """Rows that a softmax may meet: spread, equal, far apart, huge, masked, not numbers."""
    torch.manual_seed(size)
    x = torch.randn(12, size)
    x[1], x[2] = x[1] * 30, 2.5
    x[3, 1] = 3e38
    x[4], x[4, 2] = -3e38, 3e38
    x[5, : size // 2], x[6], x[7, 1], x[8, 0] = -torch.inf, -torch.inf, torch.inf, torch.nan
    x[9], x[9, 1] = -torch.inf, torch.nan
    x[10], x[11] = 1e9 + x[10], x[11] - 1e4
    return x


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize(("size", "dim"), [(1024, 1), (37, 1), (40, 0)])
def test_softmax_loses_no_more_than_its_steps_do(
    function: Callable[[torch.Tensor, int], torch.Tensor], size: int, dim: int
) -> None:
    """How far an element is from the row's peak is rounded once, and that is by how much of itself
    its exponential is off; the exponential, the sum and the quotient add about one rounding each.
    A logarithm is off by what its number is off by in relation to itself.
    """
    x = _rows(size) if dim else _rows(size).t().contiguous()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=get_backend(), dynamic=False)
    exact, eager, ours = function(x.double(), dim), function(x, dim), compiled(x, dim)
    assert torch.equal(ours.isnan(), eager.isnan())
    torch.testing.assert_close(ours, eager, equal_nan=True)
    far = (x.double().amax(dim, keepdim=True) - x.double()).abs()
    scale = (1 + far) * exact if function is torch.softmax else 1 + far + exact.abs()
    # Neither infinite nor where float32 has fewer digits.
    whole = exact.float().isfinite() & (scale > torch.finfo(torch.float32).tiny)
    assert whole.sum() > size
    assert ((ours - exact).abs() / scale)[whole].mean() <= ROUNDING


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("length", [1, 16, 37])
def test_products_that_are_added_to_are_rounded_once_as_eager_does(
    dtype: torch.dtype, length: int
) -> None:
    """All the same bits: eager's vectors and its loops over what is left multiply and add in one
    instruction where the processor has one."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.addcmul(x, y, z),
            torch.addcmul(x, y, z, value=-0.3),
            torch.add(x, y, alpha=-2.3),
            torch.sub(x, y, alpha=0.7),
            torch.rsub(x, 3, alpha=0.7),
        ]

    generator = torch.Generator().manual_seed(length)
    x, y, z = torch.randn(3, 4, length, dtype=dtype, generator=generator)
    compiled = torch.compile(function, backend=get_backend())
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert all(map(torch.equal, compiled(x, y, z), function(x, y, z)))
    torch.testing.assert_close(compiled(x, y, z), function(x, y, z))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_factor_of_what_is_added_is_rounded_to_half_types_as_eager_does(
    dtype: torch.dtype,
) -> None:
    x, y = torch.randn(2, 4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    function = lambda x, y: torch.add(x, y, alpha=-2.3)  # noqa: E731
    found = torch.compile(function, backend=get_backend())(x, y)
    assert torch.equal(found, function(x, y))
