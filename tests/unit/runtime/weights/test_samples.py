"""Which pieces of a tensor are compared."""

from __future__ import annotations

import pytest
import torch

from kernelmill.runtime.weights.contents import (
    APART_BYTES,
    LEAST_PIECES,
    PIECE_BYTES,
    memory_of,
    take_sample,
)


@pytest.mark.parametrize("elements", [1, 7, 16, 17, 64, 1000, 10**6])
def test_pieces_are_spread_over_the_whole_tensor(elements: int) -> None:
    tensor = torch.arange(elements, dtype=torch.float32)
    sample = take_sample(tensor)
    room = elements * 4
    assert len(sample.contents) == sample.count * sample.width <= room
    assert sample.width == min(PIECE_BYTES, room)
    last = (sample.count - 1) * sample.pitch
    assert room - max(room // sample.count, PIECE_BYTES) * 2 <= last <= room - sample.width
    assert sample.contents[: sample.width] == bytes(tensor.numpy())[: sample.width]
    assert sample.count <= max(LEAST_PIECES, room // APART_BYTES)


def test_any_change_of_the_whole_is_seen() -> None:
    tensor = torch.zeros(300, 400, dtype=torch.bfloat16)
    before = take_sample(tensor)
    assert take_sample(tensor) == before
    tensor[:, 100:] = 1
    assert take_sample(tensor) != before


def test_tensors_with_gaps_and_without_elements() -> None:
    room = torch.zeros(8, 100)
    before = take_sample(room[:, 50:])
    room[0, 50] = 1
    assert take_sample(room[:, 50:]) != before
    assert take_sample(room[:0]).count == 0


def test_memory_is_found_whatever_the_default_device() -> None:
    tensor = torch.arange(6, dtype=torch.uint8)[1:5:2]
    with torch.device("meta"):
        assert bytes(memory_of(tensor)) == bytes([1, 2, 3])
