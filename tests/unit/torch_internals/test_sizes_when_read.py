"""Traces whose sizes vary have nodes for what is read of them, and are otherwise as they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmill.backend import Backend, capture
from kernelmill.torch_internals import forced

LAYERS = 3

HANDED_OVER = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
"""Whether torch hands over the size of the memory, which it computed for each tensor before."""


def layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(LAYERS):
        heads = x.view(x.shape[0], -1, 2, 4).transpose(1, 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        x = torch.nn.functional.layer_norm(mixed.transpose(1, 2).reshape(x.shape) + x, (8,))
    return x


class Traced:
    """The graph that AOTAutograd makes of a function whose first size varies, as lines of text
    without numbers of names, and how many nodes were made on the way."""

    def __init__(self, function: Any, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made, self.graph = 0, []
        plain, whole = torch.fx.Graph.create_node, capture._Compilation.compile

        def create(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self.made += 1
            return plain(graph, *args, **kwargs)

        def seen(compilation: Any, gm: Any, inputs: Any, *, kind: str) -> Any:
            self.graph = nodes(gm)
            return whole(compilation, gm, inputs, kind=kind)

        torch._dynamo.reset()
        torch._dynamo.mark_dynamic(x, 0)
        with torch.no_grad(), monkeypatch.context() as patch:
            patch.setattr(torch.fx.Graph, "create_node", create)
            patch.setattr(capture._Compilation, "compile", seen)
            self.result = torch.compile(function, backend=Backend(), fullgraph=True)(x)


def nodes(gm: torch.fx.GraphModule) -> list[tuple[Any, ...]]:
    """Each node: its target, the places of the nodes it reads, its shape and strides."""
    place = {node: number for number, node in enumerate(gm.graph.nodes)}
    found: list[tuple[Any, ...]] = []
    for node in place:
        value = node.meta.get("val")
        layout = (value.shape, value.stride()) if isinstance(value, torch.Tensor) else value
        target = node.op if node.op == "placeholder" else str(node.target)
        reads = tuple(place[read] for read in node.all_input_nodes)
        found.append((node.op, target, reads, str(layout)))
    return found


def test_sizes_that_nothing_reads_have_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5, 6, 8)
    with forced(["tracing.wrappers"]):
        before = Traced(layers, x.clone(), monkeypatch)
    after = Traced(layers, x.clone(), monkeypatch)
    assert after.graph == before.graph and len(after.graph) >= 8 * LAYERS
    assert after.made < before.made - 50 * LAYERS or HANDED_OVER
    assert torch.equal(after.result, before.result)
    torch.testing.assert_close(after.result, layers(x))


def test_sizes_that_are_read_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, x.reshape(-1).unflatten(0, (-1, 3))])
        return y.new_full((y.numel(), y.stride(0)), y.shape[0]) + y.t().reshape(-1, 1)

    x = torch.randn(5, 3)
    traced = Traced(function, x, monkeypatch)
    assert torch.equal(traced.result, function(x))


def test_long_chains_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 300

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(steps):
            y = torch.cat([y, x])[1:]
        return y.reshape(-1) * y.numel()

    x = torch.randn(3, 2)
    traced = Traced(function, x, monkeypatch)
    assert torch.equal(traced.result, function(x))


def test_the_wrappers_are_torchs_own_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._subclasses.functional_tensor import FunctionalTensor

    before = vars(FunctionalTensor)["__new__"].__func__
    Traced(layers, torch.randn(5, 6, 8), monkeypatch)
    assert vars(FunctionalTensor)["__new__"].__func__ is before
