"""Frames: as many as there are callers, few of them kept when these are gone."""

import ctypes
import gc
import itertools
import logging
import threading
from contextlib import suppress
from typing import Any

import pytest
import torch

from kernelmill.runtime.memory import frames as memory
from kernelmill.runtime.memory.dims import Sizes
from kernelmill.runtime.memory.frames import MOST_IDLE, Frame, FramePool
from tests.interrupted import Interrupt


def pool() -> FramePool:
    made = FramePool()
    made.reserve(1, False)
    return made


def test_after_a_burst_of_callers_few_frames_are_kept() -> None:
    frames = pool()
    burst = [frames.take() for _ in range(3 * MOST_IDLE)]
    assert len(frames.frames) == 3 * MOST_IDLE
    for number, frame in enumerate(burst):
        frame._header.calls = number
    frames.free.extend(burst)
    expected = sum(range(3 * MOST_IDLE))
    del burst, frame
    gc.collect()
    assert len(frames.frames) == len(frames.free) == MOST_IDLE
    assert frames.calls == expected == frames.calls


def test_a_caller_gets_the_frame_that_was_used_last() -> None:
    frames = pool()
    one, two = frames.take(), frames.take()
    frames.free.append(one)
    frames.free.append(two)
    assert frames.take() is two and frames.take() is one and frames.take() not in (one, two)


def test_frames_can_go_while_others_are_counted() -> None:
    frames = pool()
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(50):
            taken = [frames.take() for _ in range(MOST_IDLE)]
            for frame in taken:
                frame._header.calls += 1
            frames.free.extend(taken)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait()
    while any(thread.is_alive() for thread in threads):
        assert frames.calls >= 0
    gc.collect()
    assert frames.calls == 3 * 50 * MOST_IDLE
    assert len(frames.frames) <= MOST_IDLE


def sizes_of(arena_bytes: int, scratch_bytes: int) -> Sizes:
    return Sizes((ctypes.c_int64 * 1)(), {}, {}, arena_bytes, scratch_bytes, arena_bytes)


def tensors_in(kept: Any) -> list[torch.Tensor]:
    return [kept] if isinstance(kept, torch.Tensor) else [t for k in kept for t in tensors_in(k)]


def test_an_interrupt_anywhere_leaves_a_frame_with_memory_of_its_own() -> None:
    few, many = sizes_of(1 << 16, 1 << 12), sizes_of(1 << 20, 1 << 16)
    for instruction in itertools.count():
        frame = Frame(1, True)
        frame.adopt(few)
        interrupt = Interrupt(instruction, (memory.__file__,))
        with suppress(KeyboardInterrupt), interrupt.on():
            frame.adopt(many)
        header = frame._header
        for kept, address, size in (
            (frame._arena, header.arena, frame.arena_bytes),
            (frame._scratch, header.scratch, header.scratch_bytes * header.threads),
        ):
            assert any(
                tensor.data_ptr() <= address and address + size <= tensor.data_ptr() + tensor.nbytes
                for tensor in tensors_in(kept)
            )
        if (sizes := frame.sizes) is not None:
            expected = sizes.table, ctypes.addressof(sizes.values)
            assert (header.table, header.values) == expected
        if interrupt.left >= 0:
            assert instruction > 20 and sizes is many
            return


@pytest.mark.parametrize(
    ("quota", "most", "said"), [(None, 64, 0), (1.5, 2, 1), (0.25, 1, 1), (80.0, 64, 0)]
)
def test_a_control_groups_quota_bounds_the_threads_and_is_said_once(
    quota: float | None, most: int, said: int,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(memory, "quota", lambda: quota)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(logging.getLogger("kernelmill"), "propagate", True)
    memory._granted_threads.cache_clear()
    made = FramePool()
    made.reserve(1, True)
    with caplog.at_level(logging.WARNING, "kernelmill.runtime"):
        assert [made.new()._header.threads for _ in range(3)] == [most] * 3
    assert sum("the control group grants" in record.message for record in caplog.records) == said
    memory._granted_threads.cache_clear()
