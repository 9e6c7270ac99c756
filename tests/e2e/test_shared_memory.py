"""Programs that write to an argument, called with tensors that lie in one memory, each with a
storage of its own: torch takes those for apart, eager does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from kernelmill import aot
from kernelmill.core.errors import InputError
from kernelmill.inference import cache_compile

COUNT = 64
MEETING = [(0, 0), (0, 32), (32, 0), (63, 0)]
"""Where in an array the two begin."""


def update(total: Tensor, x: Tensor) -> Tensor:
    total.add_(1.0)
    return torch.flip(x, (0,)) * 2.0 + total


def over(array: np.ndarray, first: int) -> Tensor:
    return torch.from_numpy(array[first : first + COUNT])


def both(one: int, other: int) -> tuple[Tensor, Tensor]:
    array = np.arange(2.0 * COUNT, dtype=np.float32)
    return over(array, one), over(array, other)


class Model(nn.Module):
    def __init__(self, folder: Path, weight: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(COUNT) if weight is None else weight, False)
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return one - 2.0 * other * self.weight

    def run(self, total: Tensor, x: Tensor) -> Tensor:
        return update(total, x) + torch.flip(self.weight, (0,))


def check(model: Model, one: Tensor, other: Tensor, expected: tuple[Tensor, Tensor]) -> None:
    with torch.no_grad():
        result = model.run(*expected)
        assert torch.equal(model.cached(one, other), result)
    assert torch.equal(one, expected[0]) and torch.equal(other, expected[1])


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "first"])
def test_a_cached_method_gives_what_eager_gives(tmp_path: Path, warm: bool) -> None:
    model = Model(tmp_path)
    if warm:
        for _ in range(3):
            check(model, *both(0, COUNT), both(0, COUNT))
    for places in MEETING:
        check(model, *both(*places), both(*places))
    check(model, *both(0, COUNT), both(0, COUNT))
    assert model.cached.statistics["uncached"] == len(MEETING) + (not warm)


@pytest.mark.parametrize("first", [0, 16, 63])
def test_a_cached_method_writes_to_the_memory_of_a_weight(tmp_path: Path, first: int) -> None:
    results: list[Tensor] = []
    for cached in (True, False):
        array = np.ones(2 * COUNT, dtype=np.float32)
        model = Model(tmp_path, over(array, 0))
        call = model.cached if cached else model.run
        with torch.no_grad():
            for total in (torch.zeros(COUNT), torch.zeros(COUNT), over(array, first)):
                result = call(total, torch.ones(COUNT))
        results += [result, torch.from_numpy(array)]
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_a_saved_program_refuses_them(tmp_path: Path) -> None:
    examples = torch.zeros(COUNT), torch.zeros(COUNT)
    program = aot.load(aot.compile(update, examples, path=tmp_path / "program.kmill"))
    for one, other in MEETING:
        for _ in range(3):  # the last ones quickly
            assert torch.equal(program(*both(0, COUNT)), update(*both(0, COUNT)))
        total, x = both(one, other)
        before = total.clone()
        with pytest.raises(InputError, match="'total' and 'x' share memory"):
            program(total, x)
        assert torch.equal(total, before)


def test_what_is_only_read_may_share_memory(tmp_path: Path) -> None:
    model = Model(tmp_path)
    read = cache_compile(model.forward, cache_dir=str(tmp_path))
    with torch.no_grad():
        for places in MEETING:
            assert torch.equal(read(*both(*places)), model.forward(*both(*places)))
    assert read.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
