"""How many products of bf16 torch's settings allow for one of f32."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from kernelmill.compiler.precision import allowed_products
from tests.torch_settings import forget_precisions, settable

_MKLDNN: Any = torch.backends.mkldnn


@contextmanager
def setting(change: Callable[[str], None], value: str, before: str) -> Generator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


@pytest.mark.parametrize(("name", "products"), [("highest", 6), ("high", 3), ("medium", 1)])
def test_of_the_precision_of_products(name: str, products: int) -> None:
    with setting(torch.set_float32_matmul_precision, name, "highest"):
        assert allowed_products() == products


@pytest.mark.parametrize("part", [_MKLDNN.matmul, torch.backends])
def test_of_onednn_and_of_all_backends(part: Any) -> None:
    def set_precision(value: str) -> None:
        part.fp32_precision = value

    forget_precisions()
    for value, products in (("ieee", 6), ("tf32", 3), ("bf16", 1), ("none", 6)):
        with settable(), setting(set_precision, value, "none"):
            assert allowed_products() == products


def test_convolutions_have_a_setting_of_their_own() -> None:
    def set_precision(value: str) -> None:
        _MKLDNN.conv.fp32_precision = value

    with setting(set_precision, "bf16", "none"):
        assert allowed_products() == 6
