"""Example arguments and tensors of a module that share memory, and writes through `as_strided`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill import InputError, UnsupportedError, aot


def _compiled(tmp_path: Path, function: Any, *args: torch.Tensor) -> Any:
    return aot.load(aot.compile(function, args, path=str(tmp_path / "m.kmill")))


class _Buffers(nn.Module):
    kept: torch.Tensor
    read: torch.Tensor

    def __init__(self, kept: torch.Tensor, read: torch.Tensor):
        super().__init__()
        self.register_buffer("kept", kept)
        self.register_buffer("read", read)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.add_(x)
        return self.kept[:2] + self.read.flatten()[:2]


def _add(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    total.add_(x)
    return total + x


@pytest.mark.parametrize("second", [slice(0, 6), slice(3, 9), slice(0, 12, 2)])
def test_examples_that_share_memory_are_several_arguments(tmp_path: Path, second: slice):
    memory = torch.arange(12.0)
    program = _compiled(tmp_path, _add, memory[:6], memory[second])
    assert memory.tolist() == list(range(12))
    total, whole = torch.ones(6), torch.arange(12.0)
    assert program(total, whole[second]).tolist() == (1 + 2 * whole[second]).tolist()
    assert total.tolist() == (1 + whole[second]).tolist()
    with pytest.raises(InputError, match="'total' and 'x' share memory"):
        program(memory[:6], memory[second])


def test_an_example_that_lies_in_a_buffer(tmp_path: Path):
    module = _Buffers(torch.zeros(4), torch.ones(3))
    program = _compiled(tmp_path, module, module.kept[:1])
    assert module.kept.tolist() == [0.0] * 4
    assert program(torch.ones(1)).tolist() == [2.0, 2.0]
    assert program(torch.ones(1)).tolist() == [3.0, 3.0]


def test_buffers_apart_in_one_memory_are_written(tmp_path: Path):
    memory = torch.zeros(8)
    program = _compiled(tmp_path, _Buffers(memory[:4], memory[4:]), torch.ones(4))
    assert program(torch.ones(4)).tolist() == [1.0, 1.0]
    assert program(torch.ones(4)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "view", [lambda kept: kept, lambda kept: kept[:3], lambda kept: kept.view(2, 2)]
)
def test_buffers_that_share_elements_and_are_written_are_named(tmp_path: Path, view: Any):
    kept = torch.zeros(4)
    with pytest.raises(UnsupportedError, match=r"kept and read share memory.*clone"):
        _compiled(tmp_path, _Buffers(kept, view(kept)), torch.ones(4))


def test_as_strided_of_an_argument_is_written(tmp_path: Path):
    def step(x: torch.Tensor) -> torch.Tensor:
        x.as_strided((3,), (2,)).add_(1)
        return 2 * x

    program = _compiled(tmp_path, step, torch.zeros(6))
    x = torch.zeros(6)
    assert program(x).tolist() == [2.0, 0.0, 2.0, 0.0, 2.0, 0.0]
    assert x.tolist() == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def test_as_strided_of_a_view_that_is_written_names_the_argument(tmp_path: Path):
    def step(total: torch.Tensor) -> torch.Tensor:
        total[2:].as_strided((3,), (1,))[0] = 1
        return total

    with pytest.raises(UnsupportedError, match="total is written to through as_strided"):
        _compiled(tmp_path, step, torch.zeros(6))


@pytest.mark.parametrize(
    ("part", "offset"), [(slice(2, 9), 0), (slice(2, 5), 2), (slice(0, 12, 2), 0)]
)
def test_as_strided_never_writes_beyond_an_argument(tmp_path: Path, part: slice, offset: int):
    """Elements before, behind and between those of the argument are no part of it."""

    def step(x: torch.Tensor) -> torch.Tensor:
        view = x.as_strided((3,), (3,), offset)
        view.add_(1)
        return view * 1

    with pytest.raises(UnsupportedError, match="as_strided"):
        _compiled(tmp_path, step, torch.arange(12.0)[part])
