"""`torch.use_deterministic_algorithms` and `npugraph_ex.scope.deterministic` in compiled code, and
bits that do not depend on runs and threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import kernelmill
from kernelmill.compat.npugraph_ex import deterministic
from tests.kept_methods import KEPT
from tests.torch_settings import threads_set

CALLS: list[int] = []


@torch.library.custom_op("determinism_tests::mode", mutates_args=())
def mode(x: Tensor) -> Tensor:
    """Torch's mode while an operator runs."""
    CALLS.append(torch.get_deterministic_debug_mode())
    return torch.full((1,), CALLS[-1])


@mode.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(1, dtype=torch.int64)


def by_torch(x: Tensor) -> list[Tensor]:
    found = [mode(x)]
    torch.use_deterministic_algorithms(True, warn_only=True)
    found += [mode(x), torch.empty(3), x + 1]
    torch.use_deterministic_algorithms(True)
    found += [mode(x), torch.empty(2, dtype=torch.int8)]
    torch.use_deterministic_algorithms(False)
    return [*found, mode(x)]


def by_scope(x: Tensor) -> list[Tensor]:
    with deterministic(1):
        with deterministic(0):
            none = mode(x)
        return [none, mode(x), torch.empty(3), x + 2, mode(x + 1), x.new_empty(2).isnan()]


@pytest.mark.needs_internal("dynamo.determinism_setter")
@pytest.mark.parametrize("function", [by_torch, by_scope])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_mode_is_that_of_the_traced_code(
    function: Callable[[Tensor], list[Tensor]], dynamic: bool
) -> None:
    x = torch.randn(5)
    compiled = torch.compile(function, backend="kernelmill", dynamic=dynamic, fullgraph=True)
    for _ in range(2):
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.get_deterministic_debug_mode() == 0


@KEPT
def test_a_kept_method_has_the_mode(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with deterministic(1):
                return mode(x) + 0 * x.sum()

    x = torch.ones(3)
    for traces in (1, 0):
        method = kernelmill.inference.cache_compile(Model().forward, cache_dir=str(tmp_path))
        assert method(x).item() == 2
        assert method.statistics["traced"] == traces


def test_the_mode_of_the_caller_comes_back_after_an_error() -> None:
    def put(x: Tensor, index: Tensor) -> Tensor:
        with deterministic(1):
            return x.put(index, index.to(x.dtype))

    compiled: Any = torch.compile(put, backend="kernelmill", fullgraph=True)
    x, index = torch.zeros(4), torch.tensor([1, 1])
    for call in (put, compiled):
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic impl"):
            call(x, index)
        assert torch.get_deterministic_debug_mode() == 0


def test_additions_of_aten_are_in_one_order() -> None:
    def added(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        with deterministic(1):
            return x.put(index, values, accumulate=True)

    x, index, values = torch.zeros(50), torch.randint(0, 50, (60_000,)), torch.randn(60_000)
    compiled: Any = torch.compile(added, backend="kernelmill", fullgraph=True)
    for count in (1, 2, 2, 2):
        with threads_set(count):
            assert torch.equal(compiled(x, index, values), added(x, index, values))


def test_kernels_give_the_same_bits_over_runs_and_threads() -> None:
    torch.manual_seed(0)
    index = torch.randint(0, 40, (6000,))
    rows = index[:, None].expand(6000, 16).contiguous()
    base = torch.randn(40, 16)
    x, weight = torch.randn(6000, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)

    def step(x: Tensor, weight: Tensor) -> list[Tensor]:
        y = functional.layer_norm(functional.gelu(x @ weight), (16,))
        heads = y[:256].view(1, 2, 128, 16)
        attended = functional.scaled_dot_product_attention(heads, heads, heads)
        return [
            base.index_put((index,), y), base.index_put((index,), y, accumulate=True),
            base.scatter(0, rows, y), base.scatter_add(0, rows, y), base.index_copy(0, index, y),
            base.scatter_reduce(0, rows, y, "mean"), y.sum(), y.sum(0), y.softmax(0), y.var(),
            y.flatten().cumsum(0), y.T @ y, attended,
        ]  # fmt: skip

    compiled: Any = torch.compile(step, backend="kernelmill")

    def run() -> list[Tensor]:
        found: list[Tensor] = compiled(x, weight)
        total = torch.stack([part.sum() for part in found]).sum()
        return [*found, *torch.autograd.grad(total, [x, weight])]

    found: list[list[Tensor]] = []
    for count in (1, 2, 3, 2):
        with threads_set(count):
            found.append(run())
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))
