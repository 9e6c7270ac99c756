"""Products of integer matrices: compiled, and wrapping around as eager's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.backend.entry import Backend
from kernelmill.compiler.linking import Compiled
from tests.differential.opinfo import Flat, check_flat
from tests.e2e.conftest import BACKEND

DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
M, K, N = 9, 70, 37

FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((M, K), (K, N))),
    "transposed": (lambda a, b: torch.mm(a, b.t()) * 2 + 1, ((M, K), (N, K))),
    "nothing": (torch.mm, ((M, 0), (0, N))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=3, alpha=2), ((N,), (M, K), (K, N))),
    "bmm": (torch.bmm, ((3, M, K), (3, K, N))),
    "linear": (torch.nn.functional.linear, ((2, M, K), (N, K), (N,))),
    "mv": (torch.mv, ((M, K), (K,))),
    "dot": (torch.dot, ((K,), (K,))),
    "matmul": (lambda a, b: (a @ b).relu(), ((2, 3, M, K), (K, N))),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products(dtype: torch.dtype, name: str, dynamic: bool) -> None:
    function, shapes = FUNCTIONS[name]
    info = torch.iinfo(dtype)
    tensors = [torch.randint(info.min, info.max, shape, dtype=dtype) for shape in shapes]
    verdict = check_flat(Flat(function, (tuple(tensors), {})), BACKEND, dynamic)
    assert verdict.status == "passed", verdict


@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_without_a_sign_by_those_with_one(dynamic: bool) -> None:
    """As torchao multiplies where a processor has instructions for these."""
    a = torch.randint(256, (M, K), dtype=torch.uint8)
    b = torch.randint(-128, 128, (K, N), dtype=torch.int8)
    a[0], a[1], b[:, 0], b[:, 1] = 255, 0, -128, 127
    made = list[Compiled[Any]]()
    multiply = torch.compile(
        torch._int_mm, backend=Backend(on_compiled=made.append), dynamic=dynamic
    )
    assert torch.equal(multiply(a, b), a.int() @ b.int())
    assert not made[0].report.fallbacks
