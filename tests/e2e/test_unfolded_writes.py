"""Writes through windows of a tensor."""

import pytest
import torch

from kernelmill.backend import Backend


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_negative_zero_stays_one_where_windows_do_not_overlap(size: int) -> None:
    def write(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x.unfold(1, size, size)[:, places] = -0.0
        return x

    places, backend = torch.tensor([1]), Backend()
    compiled = torch.compile(write, backend=backend)
    expected = write(torch.ones(2, 8), places)
    found = compiled(torch.ones(2, 8), places)
    assert torch.equal(found, expected)
    assert torch.equal(found.signbit(), expected.signbit())
    assert [capture.refused for capture in backend.captures] == [""]
