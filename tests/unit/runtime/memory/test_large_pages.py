"""Memory on large pages: where it lies, and that tensors on it do not meet."""

from pathlib import Path

import pytest
import torch

from kernelmill.runtime import background
from kernelmill.runtime.memory import allocation
from kernelmill.runtime.memory.allocation import PAGE_BYTES, HugePageArena, room

LAYOUTS = [
    ((3, 5), (5, 1), torch.float32),
    ((700, 1024), (1, 700), torch.float32),
    ((9,), (1,), torch.int8),
    ((0, 4), (4, 1), torch.float32),
    ((33,), (2,), torch.bfloat16),
    ((65,), (1,), torch.int8),
]


@pytest.mark.parametrize("count", [0, 1, PAGE_BYTES - 1, PAGE_BYTES, 5 * PAGE_BYTES // 2])
def test_all_elements_have_room(count: int) -> None:
    tensor, first = room(count, torch.uint8)
    assert first + count <= tensor.numel()
    assert (tensor.data_ptr() + first) % 64 == 0
    tensor[first : first + count] = 7


def test_what_fills_a_page_begins_with_one() -> None:
    tensor, first = room(PAGE_BYTES, torch.float32)
    assert (tensor.data_ptr() + first * 4) % PAGE_BYTES == 0
    whole = tensor.numel() - first
    assert whole * 4 >= 4 * PAGE_BYTES


def test_tensors_of_a_shelf_are_apart_and_aligned() -> None:
    arena = HugePageArena(LAYOUTS)
    made = [arena.tensor(layout) for layout in LAYOUTS]
    for number, tensor in enumerate(made):
        tensor.fill_(number)
    for number, (tensor, (shape, strides, dtype)) in enumerate(zip(made, LAYOUTS, strict=True)):
        assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (shape, strides, dtype)
        assert (tensor == number).all()
        assert tensor.data_ptr() % 64 == 0 or not tensor.numel()


def test_what_is_moved_to_large_pages_stays_as_it_is() -> None:
    tensor = torch.randint(255, (5 * PAGE_BYTES + 77,), dtype=torch.uint8)
    before, address = tensor.clone(), tensor.data_ptr()
    steps = list(allocation.move(tensor))
    assert 1 <= len(steps) <= 5
    assert torch.equal(tensor, before) and tensor.data_ptr() == address


def test_a_shelf_is_moved_once_its_tensors_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[background.Work] = []
    monkeypatch.setattr(background, "submit", moves.append)
    arena = HugePageArena(LAYOUTS)
    made = [arena.tensor(layout).fill_(3) for layout in LAYOUTS]
    assert not moves
    arena.close()
    (move,) = moves
    assert list(move())
    assert all((tensor == 3).all() for tensor in made)
    nobody_waits = HugePageArena(LAYOUTS, waiting=False)
    made = [nobody_waits.tensor(layout) for layout in LAYOUTS]
    nobody_waits.close()
    assert len(moves) == 1


def test_a_system_without_large_pages_is_none_the_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "_ADVICE", None)
    tensor, first = room(PAGE_BYTES, torch.uint8)
    assert (tensor.numel(), first) == (PAGE_BYTES, 0)
    allocation.ask(tensor)
    assert not list(allocation.move(tensor))


def test_a_torch_that_lays_no_tensor_over_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "alias", None)
    arena = HugePageArena(LAYOUTS)
    first, second = (arena.tensor(layout) for layout in LAYOUTS[:2])
    assert first.storage_offset() == second.storage_offset() == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2097152\n", 2 << 20),
        ("33554432\n", 32 << 20),
        ("0", 2 << 20),
        ("a", 2 << 20),
        ("3", 2 << 20),
    ],
)
def test_the_size_of_large_pages_is_the_system_s(tmp_path: Path, text: str, size: int) -> None:
    (tmp_path / "size").write_text(text)
    assert allocation.page_bytes(tmp_path / "size") == size
    assert allocation.page_bytes(tmp_path / "nothing") == 2 << 20
