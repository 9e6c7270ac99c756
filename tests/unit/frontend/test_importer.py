"""Small models as text, and what the importer keeps of names, roles, symbols and source lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import BackendCompilerFailed

from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.context import ImportContext
from kernelmill.frontend.importer import import_fx
from kernelmill.graph.ir import DimInput, Graph, Input
from kernelmill.graph.text import print_graph
from tests.unit.frontend.tracing import Traced, trace

Golden = Callable[[str, str], None]


def text_of(graph: Graph) -> str:
    """The graph without source lines, which would tie the text to this file's."""
    for node in graph.nodes:
        node.origin = ""
    return print_graph(graph)


def mlp(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(F.gelu(F.linear(x, w, b)), (w.shape[0],))


def attention(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=True)


def cache_step(cache: Tensor, new: Tensor, position: Tensor) -> Tensor:
    cache.index_copy_(1, position, new)
    return cache.sum(1)


def convolution(x: Tensor, w: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2)


CASES = {
    "mlp": (mlp, (torch.randn(2, 4), torch.randn(8, 4), torch.randn(8)), {}),
    "mlp_dynamic": (mlp, (torch.randn(3, 4), torch.randn(8, 4), torch.randn(8)), {"dynamic": True}),
    "attention": (
        attention,
        (torch.randn(1, 4, 5, 8), torch.randn(1, 2, 6, 8), torch.rand(1, 1, 5, 6) > 0.3),
        {},
    ),
    "cache_step": (
        cache_step,
        (torch.zeros(2, 8, 4), torch.ones(2, 1, 4), torch.tensor([3])),
        {},
    ),
    "convolution": (convolution, (torch.randn(1, 2, 6, 6), torch.randn(3, 2, 3, 3)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_models_as_text(name: str, golden: Golden) -> None:
    function, args, options = CASES[name]
    golden(f"frontend/{name}.txt", text_of(trace(function, *args, **options).graph))


def test_dynamic_sizes_are_symbols_with_their_range() -> None:
    graph = trace(lambda x: x.sum(0), torch.ones(5, 7), dynamic=True).graph
    sizes = [entry.symbol for entry in graph.inputs if isinstance(entry, DimInput)]
    assert [symbol.lo for symbol in sizes] == [2, 2]
    assert [symbol.hi for symbol in sizes] == [None, None]


def test_one_dynamic_graph_serves_other_sizes() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cat([x, x.flip(0)], 0).unfold(0, 2, 2).reshape(-1, x.shape[1]) * x.shape[0]

    traced = trace(function, torch.randn(6, 3), dynamic=True)
    with torch.no_grad():
        other = torch.randn(8, 4)
        assert torch.equal(traced(other), function(other))


def test_nodes_know_the_users_line() -> None:
    graph = trace(lambda x: x.sin(), torch.ones(2)).graph
    assert graph.nodes[0].origin.startswith("test_importer.py:")
    assert graph.nodes[0].origin.endswith(" in <lambda>")


def test_nodes_of_containers_know_their_module() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    graph = trace(model, torch.randn(3)).graph
    assert [node.origin for node in graph.nodes] == ["ReLU 0"] * (len(graph.nodes) - 1) + [
        "Tanh 1.0"
    ]


def test_strided_input_keeps_its_strides() -> None:
    (entry,) = trace(lambda x: x + 1, torch.randn(4, 3).t()).graph.tensor_inputs()
    assert entry.value.type.strides == (1, 3)


def test_strides_of_single_places_do_not_count() -> None:
    x = torch.randn(3).as_strided((1, 3), (77, 1))
    (entry,) = trace(lambda x: x + 1, x).graph.tensor_inputs()
    assert entry.value.type.strides is None


def test_constants_become_inputs_and_single_numbers_become_full() -> None:
    def function(x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(4.0)

    graph = trace(function, torch.ones(3)).graph
    held = [entry for entry in graph.inputs if isinstance(entry, Input) and entry.role == "param"]
    assert len(held) == 1
    assert 4.0 in [node.attrs.get("value") for node in graph.nodes]


def imported_roles(function: Callable[..., Tensor], *args: Tensor) -> list[str]:
    """The inputs' roles when every argument is said to be a parameter."""
    roles: list[str] = []

    def backend(gm: torch.fx.GraphModule, examples: object) -> Callable[..., object]:
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        graph = import_fx(gm, "roles", [InputRole.PARAM] * len(names), names).graph
        roles.extend(entry.role for entry in graph.tensor_inputs())
        return gm.forward

    torch._dynamo.reset()
    aot = aot_autograd(fw_compiler=backend, keep_inference_input_mutations=True)
    with torch.no_grad():
        torch.compile(function, backend=aot)(*args)
    return roles


@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
def test_what_the_graph_updates_is_no_parameter() -> None:
    def step(running: Tensor, x: Tensor) -> Tensor:
        running.mul_(0.5).add_(x)
        return running + 1

    assert imported_roles(step, torch.ones(3), torch.ones(3)) == ["user", "param"]


def refused(match: str, function: Callable[..., object], *args: Tensor) -> None:
    """The importer refuses the function's graph for this reason."""
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match=match) as caught:
        Traced(function)(*args)
    assert isinstance(caught.value.inner_exception, UnsupportedError)


def test_graphs_of_higher_order_operators_are_bodies() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y + 1, (x,))

    graph = trace(function, torch.ones(3)).graph
    (body,) = graph.body_graphs().values()  # equal graphs are one
    assert [node.op for node in body.nodes] == ["full", "expand", "add"]
    assert list(graph.bodies) == [body.name]


def test_float_of_a_size_stays_a_number() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * (x.shape[0] ** 0.5) + x.shape[1] / 3

    traced = trace(Scaled(), torch.ones(4, 5), dynamic=True)
    assert not traced.fallbacks()
    assert "dim_value" in traced.operators()


def test_sizes_that_have_no_form_matter_only_where_they_are_used() -> None:
    context = ImportContext("g")
    node = torch.fx.Graph().placeholder("size")
    context.env[node] = UnsupportedError("no form")
    with pytest.raises(UnsupportedError, match="no form"):
        context.argument([1, node])


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_strided_of_a_whole_tensor(dynamic: bool) -> None:
    trace(lambda x: (x + 1).as_strided((2, 3), (4, 1), 2), torch.randn(4, 5), dynamic=dynamic)
    trace(lambda x: (x + 1).t().as_strided((2, 3), (4, 1), 2), torch.randn(4, 5), dynamic=dynamic)


def test_as_strided_of_an_argument_sees_its_memory() -> None:
    trace(lambda x: x.as_strided((2, 2), (10, 1), 3) * 2, torch.randn(6, 5)[:, 1:3])


def test_as_strided_beyond_a_view_is_refused() -> None:
    refused("larger tensor", lambda x: (x + 1)[1:].as_strided((2, 3), (4, 1), 2), torch.ones(4, 5))
