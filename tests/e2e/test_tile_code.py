"""Models compiled for the tile unit: wherever a kernel of theirs ends, its tiles are released."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill import CompilerConfig, codegen
from kernelmill.codegen.compile import assembly
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.ir import Kernel
from kernelmill.ops import quant_matmul
from tests import zoo
from tests.tile_unit import AMX
from tests.unit.codegen.tile_state import problems, uses_tiles

pytestmark = pytest.mark.usefixtures("strict")


class Bytes(nn.Module):
    """A product of bytes with what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randint(-127, 128, (200, 256), dtype=torch.int8))
        self.scale = nn.Buffer(torch.rand(256))

    def forward(self, x: Tensor) -> Tensor:
        made = quant_matmul(x, self.weight, self.scale, output_dtype=torch.bfloat16)
        return torch.lgamma(made.float())


def halves(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    case = zoo.BUILDERS[name](small=True)
    args = tuple(a.bfloat16() if a.is_floating_point() else a for a in case.args)
    return copy.deepcopy(case.model).bfloat16(), args


class Wide(nn.Module):
    """Products large enough for tiles, with constant weights and with none, and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 768), nn.Linear(768, 256)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(nn.functional.gelu(self.first(x)))
        heads = y.view(2, 64, 4, 64).transpose(1, 2)
        z = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return z @ y.view(2, 1, 64, 256).transpose(2, 3)[:, :, :64]


MODELS = {
    "wide": lambda: (Wide().bfloat16(), (torch.randn(2, 64, 256).bfloat16(),)),
    "bytes": lambda: (Bytes(), (torch.randint(-127, 128, (120, 200), dtype=torch.int8),)),
    "bert": lambda: halves("bert"),
    "resnet50": lambda: halves("resnet50"),
}


@pytest.mark.parametrize("name", MODELS)
def test_kernels_release_their_tiles(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    made: dict[str, str] = {}
    whole = codegen.compile_kernel

    def compile_kernel(kernel: Kernel, isa: Isa) -> bytes:
        made[kernel.name] = assembly(kernel, isa)
        return whole(kernel, isa)

    monkeypatch.setattr(codegen, "compile_kernel", compile_kernel)
    torch.manual_seed(0)
    model, args = MODELS[name]()
    config = CompilerConfig()
    config.target = "x86-64-v4-amx"
    kernelmill.aot.compile(model.eval(), args, path=tmp_path / "model.kmill", config=config)
    with_tiles = {kernel: text for kernel, text in made.items() if uses_tiles(text)}
    assert with_tiles if name in ("wide", "bytes") else made
    assert [problem for text in with_tiles.values() for problem in problems(text)] == []
    assert str(AMX) in "".join(p.read_text() for p in (tmp_path / "kernels").glob("*.info"))
