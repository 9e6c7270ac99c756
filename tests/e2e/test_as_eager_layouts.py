"""Results lie in memory as eager's do, also where a layout was asked for of what ATen has made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.e2e.as_eager import differences

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
linalg, functional = torch.linalg, torch.nn.functional

ASKED: dict[str, Callable[[Tensor], Any]] = {
    "svd, contiguous": lambda x: linalg.svd(x)[0].contiguous(),
    "svd, channels last": lambda x: linalg.svd(x)[0].contiguous(memory_format=LAST),
    "svd, clone": lambda x: linalg.svd(x)[0].clone(),
    "svd, row-major clone": lambda x: linalg.svd(x)[0].clone(memory_format=torch.contiguous_format),
    "svd, flat": lambda x: linalg.svd(x)[0].contiguous().view(-1),
    "svd, both": lambda x: (lambda u: (u, u.contiguous(), u.mT))(linalg.svd(x)[0]),
    "solve": lambda x: linalg.solve(x, x + 1).contiguous(),
    "inverse, then ATen": lambda x: torch.linalg.det(linalg.inv(x).contiguous()),
    "qr": lambda x: linalg.qr(x)[1].contiguous(),
    "factors": lambda x: linalg.lu_factor(x)[0].contiguous(),
    "normal": lambda x: torch.randn(4, 3, 8, 8).contiguous(memory_format=LAST),
    "normal, both": lambda x: (lambda r: (r, r.contiguous(memory_format=LAST)))(
        torch.randn(4, 3, 8, 8)
    ),
    "normal, to": lambda x: torch.rand(4, 3, 8, 8).to(memory_format=LAST),
    "normal, clone": lambda x: torch.rand(4, 3, 8, 8).clone(memory_format=LAST),
    "normal, five dims": lambda x: torch.randn(2, 3, 4, 5, 6).contiguous(memory_format=LAST_3D),
    "normal, a dim of one": lambda x: torch.randn(4, 1, 8, 8).clone(memory_format=LAST),
    "normal, halves": lambda x: torch.randn(4, 3, 8, 8).to(torch.float16, memory_format=LAST),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()).contiguous(memory_format=LAST),
    "dropout": lambda x: functional.dropout(x, 0.5).contiguous(memory_format=LAST),
    "a permuted one": lambda x: torch.randn(4, 8, 8, 3).permute(0, 3, 1, 2).contiguous(),
    "a transposed one": lambda x: torch.randn(4, 6).t().contiguous(),
    "values of a sort": lambda x: x.sort(-1).values.contiguous(memory_format=LAST),
    "topk": lambda x: x.topk(2, 1).values.contiguous(memory_format=LAST),
    "real parts": lambda x: torch.fft.fft(x).real.contiguous(memory_format=LAST),
    "there and back": lambda x: x.to(memory_format=LAST).contiguous(),
    "flat after channels last": lambda x: x.contiguous(memory_format=LAST).flatten(),
}


def _likes(memory_format: torch.memory_format) -> Callable[[Tensor], Any]:
    def make(x: Tensor) -> Any:
        drawn = torch.randn((4, 3, 8, 8)).contiguous(memory_format=memory_format)
        given = x.contiguous(memory_format=memory_format)
        made = [
            like
            for one in (drawn, given)
            for like in (
                torch.zeros_like(one),
                torch.ones_like(one, memory_format=torch.preserve_format),
                torch.full_like(one, 2.0),
                torch.rand_like(one),
                torch.zeros_like(one, memory_format=torch.contiguous_format),
                torch.zeros_like(one, dtype=torch.int64),
                one.new_zeros(one.shape),
            )
        ]
        return drawn, given, made

    return make


LIKE = {str(each): _likes(each) for each in (torch.contiguous_format, LAST)}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*ASKED, *LIKE])
def test_results_lie_as_eagers(name: str, dynamic: bool) -> None:
    def make() -> tuple[Tensor]:
        generator = torch.Generator().manual_seed(1)
        return (torch.randn(4, 3, 8, 8, generator=generator) + 4 * torch.eye(8),)

    assert differences({**ASKED, **LIKE}[name], make, dynamic=dynamic) == []
