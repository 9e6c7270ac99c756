"""format_cast: the shape and values stay, the memory order is the format's."""

from __future__ import annotations

import pytest
import torch

import kernelmill
from kernelmill.ops import format_cast, quant_matmul


@pytest.mark.parametrize("shape", [(6, 4), (3, 6, 4)])
def test_the_packed_format_keeps_shape_and_values(shape: tuple[int, ...]) -> None:
    x = torch.randint(-9, 9, shape, dtype=torch.int8)
    packed = format_cast(x, 29)
    assert torch.equal(packed, x) and packed.data_ptr() != x.data_ptr()
    assert packed.stride()[-2:] == (1, 6)
    back = format_cast(packed, 2)
    assert torch.equal(back, x) and back.is_contiguous()


def test_products_take_either_format() -> None:
    x1, x2 = torch.randint(-9, 9, (5, 8), dtype=torch.int8), torch.ones(8, 3, dtype=torch.int8)
    scale = torch.ones(3)
    plain = quant_matmul(x1, x2, scale)
    assert torch.equal(quant_matmul(x1, format_cast(x2, 29), scale), plain)


def test_compiled_it_gives_the_same_order() -> None:
    x = torch.randint(-9, 9, (6, 4), dtype=torch.int8)
    compiled = torch.compile(format_cast, backend=kernelmill.get_backend(), fullgraph=True)
    found = compiled(x, 29)
    assert torch.equal(found, x) and found.stride() == (1, 6)


def test_it_is_a_whole_custom_operator() -> None:
    checks = torch.library.opcheck(torch.ops.kernelmill.format_cast.default, (torch.ones(3, 4), 29))
    assert set(checks.values()) == {"SUCCESS"}


def test_it_refuses_other_formats() -> None:
    with pytest.raises(kernelmill.InputError, match="format 3 is none of 2"):
        format_cast(torch.ones(3, 4), 3)
    with pytest.raises(kernelmill.InputError, match="needs 2 dims"):
        format_cast(torch.ones(3), 29)
