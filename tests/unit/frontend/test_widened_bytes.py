"""Products of widened bytes are products of bytes."""

import torch

from kernelmill.core.dtype import I8, I32
from tests.unit.frontend.tracing import trace


def test_widened_bytes() -> None:
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((3, 4, 5), (3, 5, 6)))
    graph = trace(lambda a, b: torch.bmm(a.int(), b.int()), a, b).graph
    (product,) = (node for node in graph.nodes if node.op == "matmul")
    assert [operand.dtype for operand in product.operands] == [I8, I8]
    assert product.result.dtype == I32


def test_other_integers_stay_as_they_are() -> None:
    a, b = torch.randint(-128, 128, (2, 4, 4), dtype=torch.int8)
    graph = trace(lambda a, b: a.int() @ b.short().int(), a, b).graph
    (product,) = (node for node in graph.nodes if node.op == "matmul")
    assert [operand.dtype for operand in product.operands] == [I32, I32]
