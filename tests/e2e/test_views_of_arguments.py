"""Results that are arguments or views of them, in programs at rest: of the tensors of each call,
wherever these begin in their memory and whatever strides they have."""

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


class View(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x[1], x.unsqueeze(0), x + 1


class Updated(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x.add_(1)
        return x[1], x, x * 2


class Place(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.as_strided((2,), (1,), 1), x.as_strided((2,), (1,), 1) + 1, x + 1


class PlaceOfView(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x.reshape(-1).as_strided((2,), (1,), 1) + 1,)


MODELS = [View, Updated, Place, PlaceOfView]
LAYOUTS: list[Callable[[Tensor], Tensor]] = [
    lambda memory: memory[:4].view(2, 2),
    lambda memory: memory[4:8].view(2, 2),
    lambda memory: memory[:4].view(2, 2).t(),
    lambda memory: memory[6:].view(2, 5)[:, 1:5:2],
]


def check(call: Callable[..., Any], model: torch.nn.Module, layout: Any) -> None:
    memory, others = torch.arange(16.0), torch.arange(16.0)
    with torch.no_grad():
        found, expected = call(layout(memory)), model(layout(others))
    assert torch.equal(memory, others)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)
        for tensor, whole in ((mine, memory), (theirs, others)):
            tensor.of_argument = tensor.untyped_storage()._cdata == whole.untyped_storage()._cdata
        assert mine.of_argument == theirs.of_argument
        if mine.of_argument:
            assert (mine.stride(), mine.storage_offset()) == (
                theirs.stride(),
                theirs.storage_offset(),
            )


@pytest.mark.parametrize("kind", MODELS)
def test_of_cached_methods(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_STRICT", "0")  # such a place in memory runs in torch
    model = kind()
    for again in (False, True):
        torch._dynamo.reset()
        call = cache_compile(model.forward, cache_dir=str(tmp_path), dynamic=False)
        for layout in LAYOUTS:
            check(call, model, layout)
        assert not (again and call.statistics["traced"]) or kind is PlaceOfView


@pytest.mark.parametrize("kind", MODELS[:3])
def test_of_programs_compiled_ahead(kind: Any, tmp_path: Path) -> None:
    model, path = kind(), str(tmp_path / "views.kmill")
    kernelmill.aot.compile(model, (LAYOUTS[0](torch.arange(16.0)),), path=path)
    program = kernelmill.aot.load(path)
    for number, layout in enumerate(LAYOUTS):
        if number >= 2 and kind is not View:
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
