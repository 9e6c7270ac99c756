"""Whole models lowered for the tile unit, on a machine that emulates it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill import CompilerConfig, codegen, get_backend
from kernelmill.core.target.isa import NAMED, why_not_here
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import print_kernel
from kernelmill.ops import quant_matmul, weight_quant_matmul
from tests import zoo
from tests.tolerances import assert_close

EMULATED = "x86-64-v4-amx-emulated"

pytestmark = [
    pytest.mark.usefixtures("strict"),
    pytest.mark.skipif(bool(why_not_here(NAMED[EMULATED])), reason="no AVX512-BF16"),
]


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[set[str]]:
    """Which of these the kernels that are compiled have: "tile_bf16", "tile_i8i8"."""
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    found: set[str] = set()
    whole = codegen.compile_kernel

    def compile_kernel(kernel: Kernel, *others: Any, **options: Any) -> bytes:
        text = print_kernel(kernel)
        found.update(name for name in ("tile_bf16", "tile_i8i8") if name in text)
        return whole(kernel, *others, **options)

    monkeypatch.setattr(codegen, "compile_kernel", compile_kernel)
    yield found


def compiled(model: nn.Module, **options: Any) -> Callable[..., Tensor]:
    config = CompilerConfig()
    config.target = EMULATED
    return torch.compile(
        model, backend=get_backend(compiler_config=config), fullgraph=True, **options
    )


@pytest.mark.parametrize("name", ["bert", "decoder_step"])
def test_models_in_bf16(name: str, units: set[str]) -> None:
    case = zoo.BUILDERS[name](small=True)
    args = tuple(arg.bfloat16() if arg.is_floating_point() else arg for arg in case.args)
    exact_args = tuple(arg.double() if arg.is_floating_point() else arg for arg in args)
    model = case.model.bfloat16()
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*exact_args)
        expected = copy.deepcopy(model)(*args)
        actual = compiled(model)(*args)
    assert_close(actual, expected, exact)
    assert ("tile_bf16" in units) == (name != "decoder_step"), "one row waits for memory"


class Images(nn.Module):
    """Convolutions with windows of several kinds, a residual, and pooling at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.inner = nn.Conv2d(32, 64, 3, padding=1)
        self.around = nn.Conv2d(32, 64, 1)
        self.last = nn.Conv2d(64, 40, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return torch.relu(self.last(self.inner(x) + self.around(x))).mean((2, 3))


def test_convolutions(units: set[str]) -> None:
    torch.manual_seed(0)
    model, x = Images().eval().bfloat16(), torch.randn(2, 3, 20, 17).bfloat16()
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        assert_close(compiled(model)(x), model(x), exact)
    assert units == {"tile_bf16"}


class Bytes(nn.Module):
    """A product of bytes, and one of bf16 with a weight of bytes."""

    first: Tensor
    second: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.randint(-127, 128, (200, 128), dtype=torch.int8))
        self.register_buffer("second", torch.randint(-127, 128, (128, 77), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(128) * 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        wide = quant_matmul(x, self.first, self.scale, output_dtype=torch.bfloat16)
        return weight_quant_matmul(wide, self.second, self.scale[:77].bfloat16())


def test_bytes_and_weights_of_bytes(units: set[str]) -> None:
    torch.manual_seed(0)
    model, x = Bytes().eval(), torch.randint(-127, 128, (50, 200), dtype=torch.int8)
    with torch.no_grad():
        assert_close(compiled(model)(x), model(x))
    assert units == {"tile_bf16", "tile_i8i8"}


def test_any_number_of_rows(units: set[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(70, 96), nn.GELU(), nn.Linear(96, 45)).bfloat16()
    fast = compiled(model, dynamic=True)
    for rows in (40, 3, 16, 129):
        x = torch.randn(rows, 70).bfloat16()
        with torch.no_grad():
            assert_close(fast(x), model(x))
    assert units == {"tile_bf16"}


def test_weights_that_change_are_packed_again(units: set[str]) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(64, 48).bfloat16(), torch.randn(32, 64).bfloat16()
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(2):
            assert_close(fast(x), model(x))
            model.weight.mul_(-2)
    assert units == {"tile_bf16"}
