"""Operators that we know nothing of run as torch runs them, and the rest of their graph is
compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._library.opaque_object import register_opaque_type
from torch._opaque_base import OpaqueBase
from torch.utils.checkpoint import checkpoint

import kernelmill
from kernelmill import aot
from kernelmill.core.errors import ConfigError, ConfigTypeError, KernelmillError
from tests.compiled import reported
from tests.e2e.as_eager import differences
from tests.kept_methods import KEPT
from tests.tolerances import assert_close

LIBRARY = torch.library.Library("kernelmill_tests_of_others", "DEF")
LIBRARY.define("fill(Tensor x, Tensor(a!) out) -> ()")
LIBRARY.define("add_to(Tensor x, Tensor(a!) y) -> Tensor")
LIBRARY.define("scale_(Tensor(a!) x, float f) -> Tensor(a!)")
LIBRARY.define(
    "both_(Tensor(a!) self, Tensor y, *, Tensor(b!) z) -> (Tensor(a!), Tensor, Tensor(b!))"
)
LIBRARY.define("plus(Tensor x) -> Tensor")
LIBRARY.define("plus.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
LIBRARY.define("liar_(Tensor(a!) x) -> Tensor(a!)")
LIBRARY.define("part_(Tensor(a!) x) -> Tensor(a!)")


def _fill(x: Tensor, out: Tensor) -> None:
    out.copy_(x)


def _add_to(x: Tensor, y: Tensor) -> Tensor:
    return y.add_(x).sum()


def _scale(x: Tensor, f: float) -> Tensor:
    return x.mul_(f)


LIBRARY.define("turned(Tensor x) -> Tensor")
LIBRARY.impl("turned", lambda x: x.mT.contiguous().mT, "CPU")
LIBRARY.impl("turned", torch.empty_like, "Meta")


def _both(x: Tensor, y: Tensor, *, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.mul_(2), y + 1, z.mul_(3)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fill": _fill, "add_to": _add_to, "scale_": _scale, "both_": _both,
    "plus": lambda x: x + 1, "plus.out": lambda x, *, out: out.copy_(x + 1),
    "part_": lambda x: x.add_(1)[1:],
}  # fmt: skip
for name, function in FUNCTIONS.items():
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
LIBRARY.impl("liar_", lambda x: x + 1, "CPU")
LIBRARY.impl("liar_", lambda x: x, "Meta")
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


def given_back(x: Tensor) -> Any:
    y = x + 1
    return OPS.scale_(y, 2.0) + y, OPS.scale_(x, 0.5)


def given_back_of_views(x: Tensor) -> Any:
    y = (x + 1).repeat(2, 1)
    OPS.scale_(y[1], 3.0).add_(1)
    first, fresh, last = OPS.both_(y[:, 0], x * 2, z=y[2:, 1:])
    return y, first, fresh * 2, last, OPS.scale_(x[1:].t(), 2.0), x.sum()


def given_back_twice(x: Tensor) -> Any:
    return OPS.scale_(OPS.scale_(x + 1, 2.0), 3.0), OPS.both_(x[0], x[1], z=x[2])[1]


def by_packet(x: Tensor) -> Any:
    out = torch.empty_like(x)
    return OPS.plus(x) * 2, OPS.plus(x * 2, out=out), out + 1


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("function", [given_back, given_back_of_views, given_back_twice, by_packet])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_gives_its_argument_is_a_step(function: Callable[..., Any], dynamic: bool) -> None:
    backend = kernelmill.get_backend()

    def make() -> tuple[Tensor]:
        return (torch.arange(12.0).view(3, 4),)

    assert differences(function, make, dynamic=dynamic, backend=backend) == []
    assert not any(capture.refused for capture in backend.captures)


def test_what_lies_elsewhere_than_the_argument_runs_in_torch() -> None:
    backend = kernelmill.get_backend()
    made = differences(
        lambda x: OPS.part_(x + 1) * 2, lambda: (torch.ones(3),), dynamic=False, backend=backend
    )
    assert made == [] and "another one" in backend.captures[0].refused


def test_what_is_no_argument_at_a_call_is_an_error() -> None:
    compiled: Any = torch.compile(lambda x: OPS.liar_(x + 1) * 2, backend="kernelmill")
    with pytest.raises(KernelmillError, match=r"liar_\.default gave a tensor that is not its 'x'"):
        compiled(torch.ones(3))


def test_gradients_go_round_what_gives_its_argument() -> None:
    weight = torch.randn(4, 4, requires_grad=True)

    def beside(x: Tensor) -> Tensor:
        return (OPS.scale_(x * 2, 2.0) @ weight).relu().sum()

    def through(x: Tensor) -> Tensor:
        return OPS.scale_((x @ weight).detach() + weight, 2.0).sum()

    for function, refused in ((beside, ["", ""]), (through, ["a gradient is asked for"])):
        backend = kernelmill.get_backend()
        x, call = torch.randn(4, 4), torch.compile(function, backend=backend)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch: the operator has no gradient
            found = [torch.autograd.grad(f(x), weight)[0] for f in (call, function)]
        assert_close(found[0], found[1])
        assert [c.refused.split(", and ")[-1] for c in backend.captures] == refused


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Any:
        y = x + 1
        OPS.add_to(x, y)
        return OPS.scale_(y, 2.0) + y, OPS.both_(y[0], x * 2, z=x)


@KEPT
def test_what_writes_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        cached = kernelmill.inference.cache_compile(Scaled().forward, cache_dir=tmp_path)
        mine, other = torch.ones(3, 4), torch.ones(3, 4)
        assert_close(cached(mine), Scaled()(other))
        assert_close(mine, other)
        torch._dynamo.reset()
    assert len(list(tmp_path.rglob("*.kmill"))) == 1


def test_what_gives_its_argument_is_compiled_ahead(tmp_path: Path) -> None:
    path = tmp_path / "scaled.kmill"
    aot.compile(Scaled(), (torch.ones(3, 4),), path=path)
    mine, other = torch.ones(3, 4), torch.ones(3, 4)
    found, expected = aot.load(path)(mine), Scaled()(other)
    assert_close(found, expected)
    assert_close(mine, other)
    assert found[1][2].data_ptr() == mine.data_ptr()


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
    other = kernelmill.CompilerConfig()
    other.mode = "reduce-overhead"
    with pytest.raises(ConfigError, match="a backend with another one"):
        kernelmill.inference.cache_compile(model.body, backend=backend, config=other)


def test_a_result_lies_as_its_fake_implementation_says() -> None:
    x = torch.randn(3, 4)
    call = torch.compile(lambda x: (OPS.turned(x), OPS.turned(x + 1) * 2), backend="kernelmill")
    found, computed = call(x)
    assert torch.equal(found, x) and torch.equal(computed, (x + 1) * 2)
    assert found.stride() == (4, 1)


class Place(OpaqueBase):
    """An object that graphs take as an argument, as vLLM's names of layers are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __fx_repr__(self) -> tuple[str, dict[str, type]]:
        return f"Place({self.name!r})", {"Place": Place}


class Constant(Place):
    """An object that graphs have in them."""

    def __fx_repr__(self) -> tuple[str, dict[str, type]]:
        return f"Constant({self.name!r})", {"Constant": Constant}


register_opaque_type(Place, typ="value", hoist=True)
register_opaque_type(Constant, typ="value")
FACTORS = {"first": 2.0, "second": 3.0}
for name, kind in (("times", Place), ("times_constant", Constant)):
    LIBRARY.define(f"{name}(Tensor x, {kind.__module__}.{kind.__qualname__} place) -> Tensor")
    LIBRARY.impl(name, lambda x, place: x * FACTORS[place.name], "CPU")
    LIBRARY.impl(name, lambda x, place: torch.empty_like(x), "Meta")


@pytest.mark.parametrize(
    ("times", "kind"), [(OPS.times, Place), (OPS.times_constant, Constant)], ids=["given", "held"]
)
def test_objects_are_arguments(times: Any, kind: Any) -> None:
    backend, reports = reported()

    def both(x: Tensor) -> Tensor:
        return times(torch.relu(x) + 1, kind("first")) - times(x.exp(), kind("second"))

    x = torch.randn(3, 5)
    with torch.no_grad():
        assert_close(torch.compile(both, backend=backend, fullgraph=True)(x), both(x))
    (report,) = reports
    assert len(report.fallbacks) == 2 and report.kernels


def test_other_objects_than_those_of_the_trace() -> None:
    """A region that each layer calls with its own object is one graph."""
    backend, _ = reported()

    def times(x: Tensor, place: Place) -> Tensor:
        return OPS.times(torch.relu(x) + 1, place)

    region: Any = torch.compiler.nested_compile_region(times)

    def layers(x: Tensor) -> Tensor:
        return region(region(x, Place("first")), Place("second"))

    x = torch.randn(3, 5)
    with torch.no_grad():
        assert_close(torch.compile(layers, backend=backend, fullgraph=True)(x), layers(x))
