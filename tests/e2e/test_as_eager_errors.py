"""What eager refuses is refused with its words, though kernels could compute it; and what eager
computes is compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill import aot
from kernelmill.backend import get_backend
from kernelmill.core.errors import UnsupportedError
from tests.e2e.as_eager import differences

functional = torch.nn.functional
LONG, BOOL, COMPLEX = torch.int64, torch.bool, torch.complex64
HALF, FLOAT = torch.float16, torch.float32

Row = tuple[Callable[[Tensor], Any], torch.dtype, tuple[int, ...]]

REFUSED: dict[str, Row] = {
    "average pools, adaptive": (lambda x: functional.adaptive_avg_pool2d(x, 2), LONG, (2, 3, 4, 4)),
    "average pools, as resizing": (
        lambda x: functional.interpolate(x, scale_factor=2, mode="area"), LONG, (2, 3, 4, 4)
    ),
    "resizing": (lambda x: functional.interpolate(x, scale_factor=2.0), LONG, (2, 3, 4, 4)),
    "largest of a window": (lambda x: functional.max_pool1d(x, 2), LONG, (2, 3, 8)),
    "celu": (functional.celu, LONG, (5,)),
    "hardswish": (functional.hardswish, LONG, (5,)),
    "hardshrink": (functional.hardshrink, BOOL, (5,)),
    "glu": (lambda x: functional.glu(x, -1), LONG, (4, 6)),
    "relu": (functional.relu, BOOL, (5,)),
    "threshold": (lambda x: functional.threshold(x, 1, 2), BOOL, (5,)),
    "absolute": (torch.abs, BOOL, (5,)),
    "a method": (lambda x: x.floor(), BOOL, (5,)),
    "made of operators": (functional.tanhshrink, BOOL, (5,)),
    "logaddexp": (lambda x: torch.logaddexp(x, x), LONG, (5,)),
    "cross": (lambda x: torch.linalg.cross(x, x), BOOL, (5, 3)),
    "variance": (lambda x: x.var(), LONG, (5,)),
    "a sum without NaN": (torch.nansum, COMPLEX, (5,)),
    "a loss": (lambda x: functional.binary_cross_entropy(x, x), LONG, (5,)),
    "reflected": (lambda x: functional.pad(x, (1, 1), mode="reflect"), BOOL, (1, 2, 5)),
    "lerp": (lambda x: torch.lerp(x, x, 0.5), LONG, (5,)),
    "windows": (lambda x: functional.unfold(x, 2), LONG, (1, 2, 4, 4)),
    "a negative power": (lambda x: x**-1, LONG, (5,)),
    "a number too large to fill with": (lambda x: torch.full((2,), 1e6, dtype=HALF), FLOAT, (5,)),
    "a bound too low": (lambda x: x.clamp_min(-3.4e39) + 1, FLOAT, (5,)),
    "a bound too low for halves": (lambda x: x.clamp_min(-70000.0), HALF, (5,)),
    "a mask too low for halves": (lambda x: x.masked_fill(x > 0, -1e9), HALF, (5,)),
    "after a write": (lambda x: functional.celu(x.add_(1)), LONG, (5,)),
}  # fmt: skip

COMPUTED: dict[str, Row] = {
    "a mask": (lambda x: x.masked_fill(x > 0, float("-inf")), HALF, (5,)),
    "a large number for floats": (lambda x: x.clamp_min(-3e38), FLOAT, (5,)),
    "a large number of floats": (lambda x: x.clamp_min(-1e300), torch.float64, (5,)),
    "indices": (lambda x: torch.arange(40).view(8, 5)[x] + x[:, None], LONG, (5,)),
    "an embedding": (lambda x: functional.one_hot(x, 3).cumsum(0), LONG, (5,)),
    "shifts and quotients": (lambda x: (x << 2) // (x + 1) % 3, LONG, (5,)),
    "bools": (lambda x: (x & ~x).any() | x.all(), BOOL, (5,)),
    "sums of bools": (lambda x: x.sum(0) + x.cumsum(0), BOOL, (5,)),
    "halves": (lambda x: functional.layer_norm(x, (6,)).softmax(-1) @ x.mT, HALF, (6, 6)),
    "dropped halves": (lambda x: functional.dropout(x, 0.5) * torch.rand(5), HALF, (5,)),
    "mixed halves": (lambda x: torch.where(x > 0, x, x.float() * 2), HALF, (5,)),
    "complex numbers": (
        lambda x: x * 1j + torch.full((5,), complex(-0.0, float("nan"))),
        LONG,
        (5,),
    ),
    "a large mask": (lambda x: x & torch.ones(5000, 5000, dtype=BOOL).tril()[7, :5], BOOL, (5,)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*REFUSED, *COMPUTED])
def test_errors_are_eagers(name: str, dynamic: bool) -> None:
    function, dtype, shape = {**REFUSED, **COMPUTED}[name]

    def make() -> tuple[Tensor]:
        return (torch.ones(shape, dtype=dtype),)

    backend = get_backend()
    assert differences(function, make, dynamic=dynamic, backend=backend) == []
    assert any(each.refused for each in backend.captures) == (name in REFUSED)


@pytest.mark.parametrize("dtype", [LONG, FLOAT])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - True,
        lambda x: True - x,
        lambda x: x.sub_(False) * 2,
        lambda x: torch.add(x, x, alpha=True),
        lambda x: torch.sub(x, x, alpha=True),
    ],
)
def test_bools_are_no_numbers_to_subtract(function: Any, dtype: torch.dtype) -> None:
    assert differences(function, lambda: (torch.ones(5, dtype=dtype),), dynamic=False) == []


def test_autocast_makes_halves_of_floats() -> None:
    linear = torch.nn.Linear(6, 6)

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return linear(linear(x)) + x @ linear.weight

    backend = get_backend()
    made = differences(function, lambda: (torch.ones(4, 6),), dynamic=False, backend=backend)
    assert made == [] and not any(each.refused for each in backend.captures)


@pytest.mark.parametrize("name", ["celu", "a bound too low", "largest of a window"])
def test_no_file_is_made_of_what_eager_refuses(name: str, tmp_path: Path) -> None:
    function, dtype, shape = REFUSED[name]
    with pytest.raises(UnsupportedError, match=r"eager refuses .*: .*(not implemented|overflow)"):
        aot.compile(function, (torch.ones(shape, dtype=dtype),), path=tmp_path / "file.kmill")


@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[1:], lambda x: x.t()])
def test_a_backward_of_what_was_written_since_is_refused(part: Callable[[Tensor], Tensor]) -> None:
    def function(x: Tensor) -> Tensor:
        part(x).mul_(2)
        return x.add_(1).sum()

    torch._dynamo.reset()
    for call in (function, torch.compile(function, backend=get_backend())):
        weight, x = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3)
        product = weight * x
        call(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


def test_an_error_of_eager_is_raised_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Linear(4, 4).requires_grad_(False)
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        torch.compile(model, backend="kernelmill")(torch.ones(2, 4, dtype=torch.int64))
    assert "Traceback" not in capfd.readouterr().err
