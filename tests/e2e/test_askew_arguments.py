"""Misaligned arguments, and lazily negated or conjugated ones: copied once, on the fast path, in
all modes; what a call writes to them is written where they lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.core.errors import InputError
from kernelmill.inference import cache_compile
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.quick import REFUSED, QuickCall

pytestmark = pytest.mark.usefixtures("strict")


def misaligned(x: Tensor) -> Tensor:
    room = torch.empty(x.nbytes + 8, dtype=torch.uint8)
    made = torch.frombuffer(memoryview(room.numpy())[1 : 1 + x.nbytes], dtype=x.dtype)
    return made.view(x.shape).copy_(x)


def negated(x: Tensor) -> Tensor:
    return torch._neg_view(-x)


def negated_and_misaligned(x: Tensor) -> Tensor:
    return torch._neg_view(misaligned(-x))


@pytest.fixture(params=[misaligned, negated, negated_and_misaligned])
def make(request: pytest.FixtureRequest) -> Callable[[Tensor], Tensor]:
    """Makes an argument that differs from what its memory holds."""
    return request.param


@pytest.fixture(params=["default", "dynamic", "cache_compile", "aot"])
def mode(request: pytest.FixtureRequest) -> str:
    """How a model is compiled."""
    return request.param


class Counts:
    """Calls that looked at everything, and those that the quick way refused."""

    slow = refused = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    found = Counts()
    validate, refuse = Engine.validate, QuickCall._refused

    def slow(self: Engine, arguments: Any, again: bool = False) -> Any:
        found.slow += 1
        return validate(self, arguments, again)

    def refused(self: QuickCall, *rest: Any) -> Any:
        result = refuse(self, *rest)
        found.refused += result is REFUSED
        return result

    monkeypatch.setattr(Engine, "validate", slow)
    monkeypatch.setattr(QuickCall, "_refused", refused)
    return found


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) + y * 2


class Updating(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(y)
        return x * 2, x


class Viewing(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x + y, x[1], x[1:].mT


class Doubling(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return x + y


class Solving(nn.Module):
    """With an operator of torch's own."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.linalg.qr(x)[0].abs() + y[: x.shape[0]].square() @ x.mT.contiguous().T


def compiled(mode: str, model: nn.Module, folder: Path, *example: Tensor) -> Callable[..., Any]:
    model.eval()
    if mode == "aot":
        path = str(folder / "model.kmill")
        kernelmill.aot.compile(model, example, path=path)
        return kernelmill.aot.load(path)
    if mode == "cache_compile":
        return cache_compile(model.forward, cache_dir=str(folder), dynamic=False)
    return torch.compile(model, backend="kernelmill", dynamic=True if mode == "dynamic" else None)


def test_one_copy_and_the_fast_path(
    mode: str, make: Callable[[Tensor], Tensor], tmp_path: Path, counts: Counts
) -> None:
    model, x, y = Model(), torch.randn(3, 8), torch.randn(3, 8)
    call = compiled(mode, model, tmp_path, x, y)
    with torch.no_grad():
        expected = model(x, y)
        for arguments in ((make(x), y), (x, make(y)), (make(x), make(y)), (x, y)):
            for _ in range(2):
                call(*arguments)  # Dynamo traces some anew
            counts.slow = counts.refused = 0
            torch.testing.assert_close(call(*arguments), expected)
            assert (counts.slow, counts.refused) == (0, 0)


def test_what_is_written_to_is_written_where_it_lies(
    mode: str, make: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    call = compiled(mode, Updating(), tmp_path, x.clone(), y)
    for first in (make, torch.clone, make):
        its, other = first(x), make(y)
        version = its._version
        with torch.no_grad():
            doubled, same = call(its, other)
        assert same is its
        assert its._version > version
        torch.testing.assert_close(same, its)
        torch.testing.assert_close(its, x + y)
        torch.testing.assert_close(doubled, (x + y) * 2)
        torch.testing.assert_close(other, y)


def test_views_that_are_returned_are_of_the_argument(
    mode: str, make: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    call = compiled(mode, Viewing(), tmp_path, x, y)
    for first in (torch.clone, make, make):
        its = first(x)
        with torch.no_grad():
            total, row, turned = call(its, y)
            torch.testing.assert_close(total, x + y)
            its.mul_(2)
        torch.testing.assert_close(row, 2 * x[1])
        torch.testing.assert_close(turned, 2 * x[1:].mT)


@pytest.mark.parametrize("mode", ["cache_compile", "aot"])  # Dynamo does not look at them again
def test_arguments_that_share_memory(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMILL_STRICT", "0")  # such graphs run in torch
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    call = compiled(mode, Doubling(), tmp_path, x, y)
    with torch.no_grad():
        call(x, y)
        room = misaligned(torch.randn(6, 8))
        expected = room.clone()
        total = Doubling()(expected[:4], expected[2:])
        try:
            torch.testing.assert_close(call(room[:4], room[2:]), total)
        except InputError as error:
            assert mode == "aot" and "share memory" in str(error)
        else:
            torch.testing.assert_close(room, expected)


def test_programs_with_operators_of_torch(
    mode: str, make: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    model, x, y = Solving(), torch.randn(5, 5), torch.randn(5, 5)
    call = compiled(mode, model, tmp_path, x, y)
    for _ in range(2):
        torch.testing.assert_close(call(make(x), make(y)), model(x, y), atol=1e-4, rtol=1e-4)


VIEWS: list[Callable[[Tensor], Any]] = [
    lambda x: x.t().reshape(-1) * 2,
    lambda x: (x[1:, ::2], x.as_strided((2, 2), (1, 3), 1) + 1),
    lambda x: (x.view(-1), x.expand(2, *x.shape).sum(0)),
    lambda x: torch.linalg.inv(x @ x.mT + torch.eye(x.shape[0], dtype=x.dtype)) @ x,
    lambda x: (x.abs().sum(), x.flip(0), x.resolve_neg().clone()),
]


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_views_of_negated_arguments(number: int) -> None:
    function = VIEWS[number]
    call = torch.compile(function, backend="kernelmill")
    for x in (
        torch._neg_view(torch.randn(3, 4)),
        torch.randn(4, 3, dtype=torch.cfloat).conj().imag,
    ):
        for _ in range(2):
            torch.testing.assert_close(call(x), function(x), atol=1e-4, rtol=1e-4)


CONJUGATED: list[Callable[[Tensor], Any]] = [
    lambda x: x * 2 + x.mT.contiguous().mT,
    lambda x: (x @ x.mT, x.real + x.imag),
    lambda x: torch.view_as_real(x.resolve_conj()) * 3,
    lambda x: (x.abs(), x.conj() + 1, x[1:].reshape(-1)),
]


@pytest.mark.parametrize("number", range(len(CONJUGATED)))
def test_conjugated_arguments(number: int) -> None:
    function = CONJUGATED[number]
    call = torch.compile(function, backend="kernelmill")
    for x in (torch.randn(3, 4, dtype=torch.cfloat).conj(), torch.randn(3, 4, dtype=torch.cfloat)):
        for _ in range(2):
            torch.testing.assert_close(call(x), function(x), atol=1e-4, rtol=1e-4)


def test_inference_tensors_as_arguments_take_the_fast_path(
    mode: str, tmp_path: Path, counts: Counts
) -> None:
    with torch.inference_mode():
        x, y = torch.randn(3, 8), torch.randn(3, 8)
    model = Model()
    call = compiled(mode, model, tmp_path, torch.randn(3, 8), torch.randn(3, 8))
    with torch.no_grad():
        for _ in range(3):
            call(x, y)
        counts.slow = counts.refused = 0
        torch.testing.assert_close(call(x, y), model(x, y))
    assert (counts.slow, counts.refused) == (0, 0)
