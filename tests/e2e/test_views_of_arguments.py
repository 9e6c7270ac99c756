"""Results that are arguments, buffers or other results, or views of them, in programs at rest: of
the tensors of each call, wherever these begin in their memory and whatever strides they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kernelmill
from kernelmill.core.errors import InputError
from kernelmill.inference import cache_compile
from tests.compiled import reported


class View(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x[1], x.unsqueeze(0), x + 1


class Flattened(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        flat = x.reshape(-1)  # a view, and a copy where x is transposed
        return flat, x + 1, x[1], flat[::3]


class Updated(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x.add_(1)
        return x[1], x, x * 2


class UpdatedWithItself(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x.t().mul_(1),)


class Place(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.as_strided((2,), (1,), 1), x.as_strided((2,), (1,), 1) + 1, x + 1


class PlaceOfView(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x.reshape(-1).as_strided((2,), (1,), 1) + 1,)


class Twice(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        turned = torch.rot90(x, 0, (0, 1))
        copied = x.clone()
        return turned, turned, copied, copied.t(), copied


class ViewOfResult(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        first, second = y.unbind(0)
        return first, y, y.t(), second.unsqueeze(0), first


class OnlyViewOfResult(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return ((x * 2).relu()[:, 1],)


class UpdatedInPart(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        row = x[1]
        row.mul_(3)
        return row, x.t()[0], x, x * 2


class UpdatedBits(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x.add_(1)
        return x.view(torch.int32), x[0].view(torch.int32)


class UpdatedPlace(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x.add_(1)
        return x.as_strided((2,), (1,), 1), x[None]


class CopiedInto(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2 + 1
        x.copy_(y)
        return y, y.t(), x.t()


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2, 2))
        self.weight = torch.nn.Parameter(torch.arange(4.0).view(2, 2))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.count.add_(x)
        return self.count, self.count[1], self.weight.t(), x @ self.weight, self.weight, x


MODELS = [
    View, Flattened, Updated, UpdatedWithItself, Place, PlaceOfView, Twice, ViewOfResult,
    OnlyViewOfResult, UpdatedInPart, UpdatedBits, UpdatedPlace, CopiedInto, Held,
]  # fmt: skip
IN_TORCH = (Place, PlaceOfView)
STRICT = (Updated, UpdatedWithItself, Place, UpdatedInPart, UpdatedBits, UpdatedPlace, CopiedInto)
"""Those that write to the argument, or ask for places in its memory: strides are as they were."""
LAYOUTS: list[Callable[[Tensor], Tensor]] = [
    lambda memory: memory[:4].view(2, 2),
    lambda memory: memory[4:8].view(2, 2),
    lambda memory: memory[:4].view(2, 2).t(),
    lambda memory: memory[6:].view(2, 5)[:, 1:5:2],
]


def check(call: Callable[..., Any], model: torch.nn.Module, layout: Any) -> None:
    """`model` is another one than that which is called: both may write to their buffers."""
    memory, others = torch.arange(16.0), torch.arange(16.0)
    with torch.no_grad():
        found, expected = call(layout(memory)), model(layout(others))
    assert torch.equal(memory, others)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs) and mine.dtype == theirs.dtype
    assert places(memory, *found) == places(others, *expected)


def places(*tensors: Tensor) -> list[tuple[object, ...]]:
    """For each tensor the first one in the same memory, whether it is one of those before it,
    where it begins there, and its strides."""
    found: list[tuple[object, ...]] = []
    for number, tensor in enumerate(tensors):
        memory = tensor.untyped_storage().data_ptr()
        first = next(n for n, t in enumerate(tensors) if t.untyped_storage().data_ptr() == memory)
        earlier = any(tensor is other for other in tensors[:number])
        begins = tensor.data_ptr() - tensors[first].data_ptr()
        found.append((first, earlier, begins, tensor.stride()))
    return found


def _parts(x: Tensor) -> Any:
    return (x + 1).split(2, 0)


def _of_both(x: Tensor) -> Any:
    y = x.exp()
    return y, y.view(-1), x[1:, ::2], x.t(), y[0].expand(3, -1)


def _as_complex(x: Tensor) -> Any:
    pairs = torch.view_as_complex(x.view(-1, 3, 2))
    return pairs, pairs.imag, pairs[1:].mT, x.view(torch.int32), x.unfold(0, 2, 1)


def _detached(x: Tensor) -> Any:
    return x.detach(), x[1], x + 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [_parts, _of_both, _as_complex, _detached])
def test_views_are_no_step_of_the_program(function: Any, dynamic: bool) -> None:
    torch._dynamo.reset()
    backend, reports = reported()
    call = torch.compile(function, backend=backend, dynamic=dynamic)
    for rows, gradient in ((4, False), (4, False), (4, True), (6, False), (6, False), (4, False)):
        x = torch.randn(rows, 6, requires_grad=gradient)
        with torch.no_grad():
            found, expected = call(x), function(x)
        assert places(x, *found) == places(x, *expected)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-6, atol=1e-6)
            assert mine.requires_grad == theirs.requires_grad
            if function is not _detached:  # tracing makes a view of what eager detaches
                assert mine._is_view() == theirs._is_view()
                assert (mine._base is x) == (theirs._base is x)
    assert [call for report in reports for call in report.fallbacks] == []
    assert backend.captures[0].direct is not dynamic  # Dynamo asks which sizes are dynamic


def _turned(x: Tensor) -> Any:
    left, _, right = torch.linalg.svd(x @ x.t())
    return left.mT, right[1:], left.mT.reshape(-1)


def _rotated(x: Tensor) -> Any:
    pairs = torch.view_as_complex((x * 2).unflatten(-1, (-1, 2)))
    return (torch.view_as_real(pairs * torch.exp(pairs)).flatten(-2),)


def _parts_of_complex(x: Tensor) -> Any:
    frequencies = torch.fft.rfft(x)
    return frequencies.real, frequencies.imag[1:], (frequencies.conj() * frequencies).real


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [_turned, _rotated, _parts_of_complex])
def test_views_of_what_aten_gives_are_no_copies(function: Any, dynamic: bool) -> None:
    torch._dynamo.reset()
    backend, reports = reported()
    call = torch.compile(function, backend=backend, dynamic=dynamic)
    for rows in (4, 4, 6, 4):
        x = torch.randn(rows, 6)
        with torch.no_grad():
            found, expected = call(x), function(x)
        torch.testing.assert_close(list(found), list(expected))
        assert places(x, *found) == places(x, *expected)
        assert [t._is_view() for t in found] == [t._is_view() for t in expected]
    kernels = [kernel.type for report in reports for kernel in report.kernels]
    assert "Copy" not in kernels or function is _turned  # `reshape` of what is turned is a copy


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_view_may_be_written_to_where_eagers_may(calls: int) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.view(-1), (x + 1).view(-1)[1:]

    call = torch.compile(function, backend=reported()[0])
    for _ in range(calls):
        view, other = call(torch.ones(2, 2))
    scale = torch.full((4,), 3.0, requires_grad=True)
    view.mul_(scale)
    other.mul_(scale[:3])
    (view.sum() + other.sum()).backward()
    assert scale.grad is not None and scale.grad.tolist() == [3, 3, 3, 1]


def follows(kind: Any, layout: Any) -> bool:
    """Whether results of their own lie otherwise than those of an argument that lies densely."""
    found: list[list[object]] = []
    for each in (LAYOUTS[0], layout):
        memory = torch.arange(16.0)
        with torch.no_grad():
            results = places(memory, *kind()(each(memory)))[1:]
        found.append([place for place in results if place[0] != 0])
    return found[0] != found[1]


@pytest.mark.parametrize("kind", MODELS)
def test_of_cached_methods(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_STRICT", "0")  # such a place in memory runs in torch
    for again in (False, True):
        model = kind()
        torch._dynamo.reset()
        call = cache_compile(kind().forward, cache_dir=str(tmp_path), dynamic=False)
        for layout in LAYOUTS:
            check(call, model, layout)
        assert not (again and call.statistics["traced"]) or kind is PlaceOfView
        assert not call.statistics["uncached"] or kind in IN_TORCH


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind is not PlaceOfView])
def test_of_programs_compiled_ahead(kind: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "views.kmill")
    kernelmill.aot.compile(kind(), (LAYOUTS[0](torch.arange(16.0)),), path=path)
    program, model = kernelmill.aot.load(path), kind()
    for number, layout in enumerate(LAYOUTS):
        if (number >= 2 and kind in STRICT) or (number == 2 and follows(kind, layout)):
            with pytest.raises(InputError, match="strides"):
                check(program, model, layout)
        else:
            check(program, model, layout)


def test_of_cached_methods_where_sizes_vary(tmp_path: Path) -> None:
    model = View()
    for _ in range(2):
        torch._dynamo.reset()
        call = cache_compile(model.forward, cache_dir=str(tmp_path), dynamic=True)
        for rows in (3, 2, 5):
            check(call, model, lambda memory, rows=rows: memory[1 : 1 + 3 * rows].view(rows, 3))
        assert call.statistics["uncached"] == 0
