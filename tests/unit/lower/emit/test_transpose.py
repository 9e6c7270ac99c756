"""Square blocks turned round in registers, on several vector widths."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import host, profile
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.emit.microkernel import transpose
from tests.unit.lower.launched import Launched, interpret


@pytest.mark.parametrize("count", [2, 4, 8, 16])
@pytest.mark.parametrize("target", [profile("x86-64-v2"), profile("x86-64-v3"), host()], ids=str)
def test_transpose(target, count: int) -> None:
    builder = KernelBuilder("turn", "Transpose")
    for name, access in (("x", "in"), ("y", "out")):
        builder.buffer(name, F32, count * count, access)
    rows = [builder.load("x", i * count, F32, count) for i in range(count)]
    for i, column in enumerate(transpose(builder, rows)):
        builder.store("y", i * count, column)
    kernel = Launched(builder.kernel, target)
    x = torch.randn(count, count)
    for run in (kernel, lambda tensors, sizes: interpret(kernel.kernel, tensors, sizes)):
        y = torch.zeros(count, count)
        run({"x": x, "y": y}, {})
        assert torch.equal(y, x.t())
