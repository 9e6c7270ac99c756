"""Long reductions in two parts: the same results, and only where there are few of them."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dtype import BF16, F32, I64, DType, to_torch
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.passes.split_joins import SplitReductions


def _reduction(op: str, dtype: DType, shape: tuple[int, ...], dims: tuple[int, ...]) -> Graph:
    builder = GraphBuilder("reduction")
    x = builder.input("x", dtype, shape)
    builder.graph.results = [builder.emit(op, x, dims=dims)]
    return builder.graph


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("dtype", [F32, BF16, I64])
def test_parts_give_the_same_result(op: str, dtype: DType) -> None:
    graph = _reduction(op, dtype, (128, 3, 64), (0, 2))
    split = SplitReductions(least=1024).apply(graph)
    x = torch.randint(-8, 8, (128, 3, 64)).to(to_torch(dtype))
    (expected,), (found,) = run_graph(graph, [x]), run_graph(split, [x])
    assert sum(node.op == op for node in split.nodes) == 2
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_half_types_are_rounded_once() -> None:
    graph = _reduction("reduce_sum", BF16, (4096,), (0,))
    split = SplitReductions(least=1024).apply(graph)
    x = torch.full((4096,), 1.0078125, dtype=torch.bfloat16)
    (found,) = run_graph(split, [x])
    assert isinstance(found, torch.Tensor)
    assert found.item() == torch.tensor(4096 * 1.0078125).bfloat16().item()


def test_many_results_need_no_parts() -> None:
    graph = _reduction("reduce_sum", F32, (64, 4096), (1,))
    assert SplitReductions(least=1024).apply(graph) is graph


def test_short_or_indivisible_reductions_stay() -> None:
    for length in (512, 1031):
        graph = _reduction("reduce_sum", F32, (length,), (0,))
        assert SplitReductions(least=1024).apply(graph) is graph
