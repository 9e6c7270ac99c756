"""Operators that we know nothing of run as torch runs them, and the rest of their graph is
compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import kernelmill
from kernelmill.core.errors import ConfigError, ConfigTypeError
from tests.tolerances import assert_close

LIBRARY = torch.library.Library("kernelmill_tests_of_others", "DEF")
LIBRARY.define("fill(Tensor x, Tensor(a!) out) -> ()")
LIBRARY.define("add_to(Tensor x, Tensor(a!) y) -> Tensor")
LIBRARY.define("scale_(Tensor(a!) x, float f) -> Tensor(a!)")


def _fill(x: Tensor, out: Tensor) -> None:
    out.copy_(x)


def _add_to(x: Tensor, y: Tensor) -> Tensor:
    return y.add_(x).sum()


def _scale(x: Tensor, f: float) -> Tensor:
    return x.mul_(f)


LIBRARY.define("turned(Tensor x) -> Tensor")
LIBRARY.impl("turned", lambda x: x.mT.contiguous().mT, "CPU")
LIBRARY.impl("turned", torch.empty_like, "Meta")

for name, function in (("fill", _fill), ("add_to", _add_to), ("scale_", _scale)):
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
OPS: Any = torch.ops.kernelmill_tests_of_others


def into_new_memory(x: Tensor) -> Tensor:
    y = x + 1
    out = torch.empty_like(x)
    OPS.fill(y, out)
    return out * OPS.add_to(y, out) + out


def into_views(x: Tensor) -> Tensor:
    y = (x + 1).repeat(2, 1)
    OPS.fill(x[0], y[1])
    OPS.add_to(x[:, 0], y[:3, 1])
    return y.exp()


def into_the_argument(x: Tensor) -> Tensor:
    OPS.add_to(x + 1, x)
    OPS.fill(x[0] * 2, x[1])
    return x * 2


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("function", [into_new_memory, into_views, into_the_argument])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_writes_is_a_step(function: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    backend = kernelmill.get_backend()
    compiled: Any = torch.compile(function, backend=backend, dynamic=dynamic)
    for start in (0, 1):
        mine = torch.randn(5, 4)[start : start + 3]
        other = mine.clone()
        with torch.no_grad():
            assert_close(compiled(mine), function(other))
        assert_close(mine, other)
    assert not any(capture.refused for capture in backend.captures)


def test_what_gives_its_argument_is_right() -> None:
    def scaled(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        return OPS.scale_(y, 2.0) + y, OPS.scale_(x, 0.5)

    backend = kernelmill.get_backend()
    compiled: Any = torch.compile(scaled, backend=backend)
    mine = torch.randn(3)
    other = mine.clone()
    assert_close(compiled(mine)[0], scaled(other)[0])
    assert_close(mine, other)
    assert "gives a tensor that it was given" in backend.captures[0].refused


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.drop = nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.3)

    def body(self, x: Tensor) -> Tensor:
        return x + self.narrow(self.drop(nn.functional.gelu(self.wide(x))))

    def forward(self, x: Tensor) -> Tensor:
        once: Any = checkpoint(self.body, x, use_reentrant=False)
        return checkpoint(self.body, once, use_reentrant=False)  # type: ignore[return-value]


@pytest.mark.usefixtures("strict")
def test_checkpointed_dropout_is_compiled_and_drawn_as_in_eager() -> None:
    model, x = Checkpointed(), torch.randn(8, 16)
    backend = kernelmill.get_backend()
    found: list[list[Tensor]] = []
    for call in (torch.compile(model, backend=backend), model):
        torch.manual_seed(5)
        result: Tensor = call(x)
        found.append([result, *torch.autograd.grad(result.sum(), list(model.parameters()))])
    assert_close(found[0], found[1])
    assert [c.kind for c in backend.captures] == ["forward", "backward"]
    assert not any(capture.refused for capture in backend.captures)


def test_memory_is_filled_where_algorithms_are_deterministic() -> None:
    def made(x: Tensor) -> list[Tensor]:
        kinds = (torch.int64, torch.uint8, torch.bool, torch.bfloat16)
        empty = [x.new_empty(2, dtype=kind) for kind in kinds]
        return [torch.empty(3), torch.empty_like(x), x + 1, *empty]

    compiled: Any = torch.compile(made, backend="kernelmill")
    x = torch.ones(3)
    compiled(x)
    torch.use_deterministic_algorithms(True)
    try:
        torch.testing.assert_close(compiled(x), made(x), rtol=0, atol=0, equal_nan=True)
    finally:
        torch.use_deterministic_algorithms(False)


def test_complex_constants_that_are_not_finite_have_names() -> None:
    def added(x: Tensor) -> Tensor:
        return torch.logaddexp(x, x + 1)

    x = torch.complex(torch.randn(4), torch.randn(4))
    compiled: Any = torch.compile(added, backend="kernelmill")
    assert_close(compiled(x), added(x))


class Plus(nn.Module):
    def body(self, x: Tensor) -> Tensor:
        return x + 1


def test_a_cached_method_takes_a_backend(tmp_path: Path) -> None:
    backend, model = kernelmill.get_npu_backend(), Plus()
    cached = kernelmill.inference.cache_compile(model.body, backend=backend, cache_dir=tmp_path)
    assert_close(cached(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(ConfigTypeError, match="get_backend"):
        kernelmill.inference.cache_compile(model.body, backend="inductor")
    with pytest.raises(ConfigError, match="its own"):
        kernelmill.inference.cache_compile(model.body, backend=backend, config=backend.config)


def test_a_result_lies_as_its_fake_implementation_says() -> None:
    x = torch.randn(3, 4)
    call = torch.compile(lambda x: (OPS.turned(x), OPS.turned(x + 1) * 2), backend="kernelmill")
    found, computed = call(x)
    assert torch.equal(found, x) and torch.equal(computed, (x + 1) * 2)
    assert found.stride() == (4, 1)
