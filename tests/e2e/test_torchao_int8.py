"""Models that torchao has quantised, inputs too, run on the kernels of int8 products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernelmill.backend.entry import Backend
from kernelmill.core.dtype import I8

quantization = pytest.importorskip("torchao.quantization")


def test_dynamic_int8() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32)).eval()
    x = torch.randn(4, 64)
    with torch.no_grad():
        exact = model(x)
        quantization.quantize_(model, quantization.Int8DynamicActivationInt8WeightConfig())
        wanted = model(x)
    made = []
    compiled = torch.compile(model, backend=Backend(on_compiled=made.append), fullgraph=True)
    with torch.no_grad():
        found = compiled(x)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert (found - exact).norm() < 0.03 * exact.norm()
    (program,) = made
    products = [node for node in program.draft.graph.nodes if node.op == "matmul"]
    assert [operand.dtype for node in products for operand in node.operands] == [I8] * 4
    assert not program.report.fallbacks
