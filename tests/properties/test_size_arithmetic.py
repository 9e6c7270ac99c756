"""Random arithmetic on sizes, used as a slice's end, operand, shape, attribute and result."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.registry import lookup_backend

import kernelmill

Integer = Callable[[int], int]
Float = Callable[[int], float]

SIZES = (12, 17, 23, 9)


def _integer(draw: random.Random, depth: int) -> Integer:
    if depth == 0:
        constant = draw.randint(1, 9)
        return draw.choice((lambda n: n, lambda n: n, lambda n: constant))
    a, k = _integer(draw, depth - 1), draw.randint(1, 7)
    b, f = _integer(draw, depth - 1), _float(draw, depth - 1)
    return draw.choice(
        (
            lambda n: a(n) + b(n), lambda n: a(n) - b(n), lambda n: a(n) * k,
            lambda n: a(n) // k, lambda n: a(n) // -k, lambda n: -(-a(n) // k),
            lambda n: a(n) % k, lambda n: (-a(n)) % k, lambda n: min(a(n), b(n)),
            lambda n: max(a(n), k), lambda n: abs(a(n) - k), lambda n: a(n) & k,
            lambda n: a(n) | k, lambda n: a(n) ^ k, lambda n: a(n) >> 1,
            lambda n: 1 << (a(n) % 4), lambda n: 2 ** (b(n) % 4), lambda n: int(f(n)),
            lambda n: round(f(n)), lambda n: math.ceil(f(n)), lambda n: math.floor(f(n)),
        )
    )  # fmt: skip


def _float(draw: random.Random, depth: int) -> Float:
    a, k = _integer(draw, max(depth - 1, 0)), draw.uniform(0.1, 2)
    return draw.choice(
        (
            lambda n: a(n) * k, lambda n: a(n) / 7, lambda n: a(n) * 0.1 * 3,
            lambda n: (abs(a(n)) + 1) ** 0.5, lambda n: math.sqrt(abs(a(n))),
            lambda n: math.log2(abs(a(n)) + 1), lambda n: float(a(n)),
            lambda n: a(n) / (n - 3), lambda n: n**-0.5,
        )
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_arithmetic_on_sizes_is_compiled_and_gives_what_eager_does(seed: int) -> None:
    draw = random.Random(seed)
    integer, number = _integer(draw, 2), _float(draw, 1)

    def used(x: torch.Tensor) -> Any:
        n = x.shape[0]
        k, f = integer(n), number(n)
        flag = n > 15
        return (
            x.relu()[: abs(k)] * 2, x * k, x * f, torch.full((abs(k) % 5 + 1,), f),
            F.leaky_relu(x, f), F.elu(x, abs(f)),
            F.conv1d(x.t()[None], _WEIGHT, padding=abs(k) % 3),
            torch.full((1,), flag), x + flag, k, f, flag,
        )  # fmt: skip

    torch._dynamo.reset()
    counted: list[int] = []

    def counting(gm: Any, examples: Any) -> Any:
        made = lookup_backend("aot_eager")(gm, examples)  # raises where Dynamo begins anew
        counted.append(1)
        return made

    expected = torch.compile(used, backend=counting, dynamic=True)
    for n in SIZES:
        expected(_input(n))
    torch._dynamo.reset()
    backend = kernelmill.get_backend()
    compiled = torch.compile(used, backend=backend, dynamic=True)
    for n in SIZES:
        _same(compiled(_input(n)), used(_input(n)))
    assert {capture.refused for capture in backend.captures} == {""}
    assert len(backend.captures) == len(counted)


_WEIGHT = torch.linspace(-1, 1, 4 * 4 * 3).reshape(4, 4, 3)


def _input(n: int) -> torch.Tensor:
    return torch.linspace(-2, 3, n * 4).reshape(n, 4)


def _same(found: Any, expected: Any) -> None:
    for have, want in zip(found, expected, strict=True):
        assert type(have) is type(want)
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(have, want)
        else:
            assert have == want
