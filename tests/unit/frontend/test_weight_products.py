"""ATen's products with packed weights: taken apart, or left to ATen where a layout is not known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.core.dtype import U8
from kernelmill.frontend.aten import contractions
from kernelmill.frontend.aten import contractions as int4_layouts
from kernelmill.frontend.aten.contractions import Int4Layout
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from tests.tolerances import mismatch


class Int8(nn.Module):
    def __init__(self, n: int, k: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (n, k)).to(torch.int8))
        self.register_buffer("scale", (2.0 ** torch.randint(-9, -5, (n,))).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("m", [1, 5, 20])
def test_int8(m: int, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    model = Int8(48, 64, dtype)
    x = torch.randint(-3, 4, (m, 64)).to(dtype)
    with torch.no_grad():
        compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
        assert mismatch(compiled(x), model(x)) is None
        assert kernelmill.explain(model, x).as_dict()["fallbacks"] == []


class Int4(nn.Module):
    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        numbers = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
        self.register_buffer("weight", packed)
        self.register_buffer("scale", torch.rand(k // 32, n, 2).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.weight, 32, self.scale) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m", [1, 20])
def test_int4_in_the_layout_of_torch(m: int, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    model, x = Int4(144, 64), torch.randn(m, 64).to(dtype)
    model.scale = model.scale.to(dtype)
    with torch.no_grad():
        compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
        assert mismatch(compiled(x), model(x)) is None
        assert kernelmill.explain(model, x).as_dict()["fallbacks"] == []


def test_int4_in_a_layout_that_is_not_known_is_left_to_aten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(contractions, "int4_layout", lambda: None)
    model, x = Int4(64, 64), torch.randn(2, 64).bfloat16()
    with torch.no_grad():
        compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
        assert mismatch(compiled(x), model(x)) is None
        assert len(kernelmill.explain(model, x).as_dict()["fallbacks"]) == 1


@pytest.mark.parametrize("n", [16, 32, 80, 144])
@pytest.mark.parametrize("layout", int4_layouts.LAYOUTS, ids=str)
def test_layouts_of_other_processors(layout: Int4Layout, n: int) -> None:
    """Bytes made as ATen's kernels for AVX-512, AVX2 and neither make them."""
    numbers = torch.randint(0, 16, (n, 6), dtype=torch.uint8)
    parts = list[torch.Tensor]()
    for first in range(0, n, layout.block):
        block = numbers[first : first + layout.block].T
        half = block.shape[1] // 2
        if layout.halves and half * 2 == layout.block:
            low, high = block[:, :half], block[:, half:]
        else:
            low, high = block[:, 0::2], block[:, 1::2]
        parts.append((low | high << 4).flatten())
    packed = torch.cat(parts).reshape(n, 3)
    builder = GraphBuilder("g")
    emitter = Emitter(builder, SymbolTable())
    source = builder.input("w", U8, (n, 3))
    builder.graph.results = [int4_layouts.unpacked_int4(emitter, source, n, 6, layout)]
    (found,) = run_graph(builder.graph, [packed])
    assert torch.equal(found, numbers)
