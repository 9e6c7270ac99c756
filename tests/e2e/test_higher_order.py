"""Higher-order operators: the graph around them is compiled, and so are those that they call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.base_hop import BaseHOP
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from kernelmill.backend.entry import Backend
from kernelmill.compiler import pipeline
from kernelmill.compiler.linking import Compiled, without_bodies
from kernelmill.compiler.objects import KernelBuilds
from kernelmill.config import CompilerConfig
from kernelmill.inference import set_dim_gears
from tests.e2e.higher_order_models import MODELS, Chosen, Layer, Layers, flat
from tests.tolerances import mismatch

Function = Callable[..., Any]


class Run:
    """A function compiled, and what it was compiled to."""

    def __init__(self, function: Function, *, dynamic: bool = False, mode: str = "") -> None:
        torch._dynamo.reset()
        self.made: list[Compiled[Any]] = []
        config = CompilerConfig()
        if mode:
            config.mode = mode
        self.backend = Backend(config, on_compiled=self.made.append)
        self.function = torch.compile(function, backend=self.backend, dynamic=dynamic)

    @property
    def counts(self) -> tuple[int, int]:
        """How many graphs were compiled, and how many bodies."""
        assert not any(capture.refused for capture in self.backend.captures)
        mains = len(without_bodies(self.made))
        return mains, len(self.made) - mains


def assert_as_eager(got: Any, wanted: Any) -> None:
    for one, other in zip(flat(got), flat(wanted), strict=True):
        assert type(one) is type(other)
        if isinstance(one, Tensor):
            assert one.stride() == other.stride()
            assert not mismatch(one, other)
        else:
            assert one == other


@pytest.mark.parametrize("name", MODELS)
def test_inference(name: str) -> None:
    model, bodies = MODELS[name]
    module = model().eval()
    run = Run(module)
    with torch.no_grad():
        for sign in (1, -1):
            x = sign * torch.rand(3, 8)
            assert_as_eager(run.function(x), module(x))
    assert run.counts == (1, bodies)


@pytest.mark.parametrize("name", MODELS)
def test_sizes_that_vary(name: str) -> None:
    model, bodies = MODELS[name]
    module = model().eval()
    run = Run(module)
    with torch.no_grad():
        for rows in (3, 5, 7):
            x = torch.randn(rows, 8)
            torch._dynamo.mark_dynamic(x, 0)
            assert_as_eager(run.function(x), module(x))
    assert run.counts == (1, bodies)
    (main,) = without_bodies(run.made)
    assert main.lowered.plan.symbols


@pytest.mark.parametrize("name", ["cond", "scan", "map", "regions"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_training(name: str, dynamic: bool) -> None:
    model, _ = MODELS[name]
    module = model()
    run = Run(module)
    parameters = list(module.parameters())

    def trained(function: Function, x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        if dynamic:
            torch._dynamo.mark_dynamic(x, 0)
        results = flat(function(x))
        loss = sum(((result * result).sum() for result in results), torch.zeros(()))
        return [*results, *torch.autograd.grad(loss, (x, *parameters), allow_unused=True)]

    for rows in (3, 5) if dynamic else (3, 3):
        x = torch.rand(rows, 8)
        for got, wanted in zip(trained(run.function, x), trained(module, x), strict=True):
            wanted = torch.zeros_like(got) if wanted is None else wanted
            assert not mismatch(got, wanted)
    graphs, bodies = run.counts
    assert graphs == 2  # forward and backward
    assert bodies >= 2


def test_equal_regions_are_one_program_for_all_their_weights() -> None:
    module = Layers(6).eval()
    run = Run(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        assert_as_eager(run.function(x), module(x))
        assert run.counts == (1, 1)
        (body,) = [each for each in run.made if each not in without_bodies(run.made)]
        packed = body.program.report()["repacks"]
        assert packed == 6  # the weights of each, once
        assert_as_eager(run.function(x), module(x))
        assert body.program.report()["repacks"] == packed
        module.layers[2].linear.weight.mul_(2)
        assert_as_eager(run.function(x), module(x))
        assert body.program.report()["repacks"] == packed + 1
        module.layers[3].linear.weight.data = torch.randn(8, 8)
        assert_as_eager(run.function(x), module(x))


def test_bodies_are_compiled_in_one_batch_with_their_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches: list[KernelBuilds] = []

    class Counted(KernelBuilds):
        def __enter__(self) -> KernelBuilds:
            batches.append(self)
            return super().__enter__()

    monkeypatch.setattr(pipeline, "KernelBuilds", Counted)
    module, x = Nested().eval(), torch.randn(3, 8)
    run = Run(module)
    with torch.no_grad():
        assert_as_eager(run.function(x), module(x))
    assert run.counts == (1, 4)
    assert len(batches) == 1


def test_regions_that_write_to_their_buffers() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        @torch.compiler.nested_compile_region
        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x)

    class Means(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(Mean() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = part(x) + 1
            return x

    module, other = Means().train(), Means().train()
    other.load_state_dict(module.state_dict())
    run = Run(module)
    x = torch.randn(5, 8)
    with torch.no_grad():
        for _ in range(2):
            assert_as_eager(run.function(x), other(x))
    for got, wanted in zip(module.buffers(), other.buffers(), strict=True):
        assert not mismatch(got, wanted)
    assert run.counts[0] == 1


class Nested(nn.Module):
    """With an operator inside of a region, beside another one."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen, self.layer = Chosen(), Layer()

    @torch.compiler.nested_compile_region
    def region(self, x: Tensor) -> Tensor:
        return self.chosen(x) + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(self.region(self.region(x))))


def test_operators_inside_of_bodies() -> None:
    module = Nested().eval()
    run = Run(module)
    with torch.no_grad():
        for sign in (1, -1):
            x = sign * torch.rand(3, 8)
            assert_as_eager(run.function(x), module(x))
    assert run.counts == (1, 4)  # both branches, the region around them, the layer


def test_random_numbers_are_those_of_eager() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: torch.rand_like(x), lambda x: x + 1, (x,))
        return y + torch.rand(3)

    run = Run(function)
    with torch.no_grad():
        for sign in (1, -1):
            x = sign * torch.rand(2, 3)
            torch.manual_seed(7)
            got = run.function(x)
            torch.manual_seed(7)
            assert_as_eager(got, function(x))
    assert run.counts == (1, 2)


def test_results_of_unknown_sizes() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x[:2] * 2, lambda x: x[:3] + 1, (x,)) + 1

    run = Run(function)
    with torch.no_grad():
        for sign in (1, -1):
            x = sign * torch.rand(4, 3)
            assert_as_eager(run.function(x), function(x))
    assert run.counts == (1, 2)


def causal(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
    return torch.where(row >= column, score + 0.1 * (row - column), -float("inf"))


@pytest.mark.parametrize("masked", [False, True])
def test_flex_attention(masked: bool) -> None:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
    linear = nn.Linear(16, 16)

    def function(x: Tensor) -> Tensor:
        chosen: dict[str, Any] = {"block_mask": mask} if masked else {"score_mod": causal}
        return flex_attention(linear(x), x, x, **chosen) + 1

    run = Run(function)
    x = torch.randn(1, 2, 128, 16)
    with torch.no_grad():
        assert_as_eager(run.function(x), function(x))
    assert run.counts[0] == 1


class Twice(BaseHOP):
    """An operator that nobody here knows."""

    def __init__(self) -> None:
        super().__init__("tests_twice")

    def __call__(self, subgraph: Any, *operands: Any, **kwargs: Any) -> Any:
        return super().__call__(subgraph, *operands, **kwargs)

    def _call_CompositeExplicitAutograd(self, subgraph: Any, *operands: Any, **kwargs: Any) -> Any:
        assert isinstance(subgraph, torch.fx.GraphModule)
        return tuple(2 * result for result in subgraph(*operands))


twice = Twice()


def test_an_unknown_operator_runs_as_torch_does_it() -> None:
    def function(x: Tensor) -> Any:
        (y,) = twice(lambda y: (y.sin() + 1,), x * 3)
        return y + 1

    run = Run(function)
    x = torch.randn(3, 4)
    with torch.no_grad():
        assert_as_eager(run.function(x), 2 * ((x * 3).sin() + 1) + 1)
    assert run.counts == (1, 0)
    (made,) = run.made
    assert [target for target, *_ in made.report.fallbacks] == ["higher_order.tests_twice"]


@pytest.mark.parametrize("name", ["cond", "regions"])
def test_captured_operator_by_operator(name: str) -> None:
    model, bodies = MODELS[name]
    module = model().eval()
    run = Run(module, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(2):
            x = torch.rand(3, 8)
            assert_as_eager(run.function(x), module(x))
    assert run.counts == (1, bodies)


@pytest.mark.parametrize(("name", "bodies"), [("cond", 2), ("regions", 1)])
def test_gears_share_their_bodies(name: str, bodies: int) -> None:
    module = MODELS[name][0]().eval()
    run = Run(module)
    function = torch.compile(module, backend=run.backend)
    with torch.no_grad():
        first = torch.randn(4, 8)
        set_dim_gears(first, {0: [4, 8]})
        for x in (first, torch.randn(8, 8), torch.randn(4, 8)):
            assert_as_eager(function(x), module(x))
    assert run.counts == (2, bodies)
