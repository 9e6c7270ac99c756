"""What waits for what in a traced graph stands in the marks of its operators."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx.traceback import preserve_node_meta

from kernelmill.config.super_kernel_marks import UNMARKED
from kernelmill.graph.ir import Graph, Node
from kernelmill.scope import super_kernel, wait_tensor
from tests.unit.frontend.tracing import trace


def traced(model: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Graph:
    with preserve_node_meta():
        return trace(model, x, y).graph


def operators(graph: Graph, op: str) -> list[Node]:
    return [node for node in graph.nodes if node.op == op]


def events(node: Node) -> tuple[set[int], set[int]]:
    mark = node.mark
    return set(mark.awaited), set(mark.given)


def test_readers_wait_also_behind_views() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        with super_kernel("sp1"):
            made = y.exp().t()
            waiting = wait_tensor(x, made).reshape(4, 2)
            return waiting.sin() + made.sum() + x.cos().sum()

    graph = traced(model, torch.ones(2, 4), torch.ones(3, 5))
    assert not operators(graph, "aten")
    assert [events(node) for node in operators(graph, "sin")] == [({1}, set())]
    assert [events(node) for node in operators(graph, "exp")] == [(set(), {1})]
    assert [events(node) for node in operators(graph, "cos")] == [(set(), set())]


def test_outside_of_ranges_nothing_waits() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        return wait_tensor(x, y.exp()).sin()

    graph = traced(model, torch.ones(2, 4), torch.ones(3))
    assert [node.mark for node in graph.nodes] == [UNMARKED] * len(graph.nodes)


def test_an_argument_is_never_waited_for() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        with super_kernel("sp1"):
            return wait_tensor(x, y).sin()

    graph = traced(model, torch.ones(2, 4), torch.ones(3))
    assert [events(node) for node in operators(graph, "sin")] == [({1}, set())]
    assert not any(events(node)[1] for node in graph.nodes)
