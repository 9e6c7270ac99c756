"""Which writes to memory are found, and what they are taken for."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from ctypes import addressof, c_char, memmove, memset
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelmill.runtime.weights import page_scan, write_watch
from kernelmill.runtime.weights.page_scan import PAGE, merged
from kernelmill.runtime.weights.write_watch import WatchedSpan, WriteWatch
from tests.interrupted import Interrupt

PAGES = 8


def _allowed() -> bool:
    return WriteWatch().allowed


needs_scans = pytest.mark.skipif(not _allowed(), reason="this system does not tell of writes")


@dataclass
class Room:
    memory: mmap.mmap
    address: int

    def put(self, page: int, offset: int = 0) -> None:
        self.memory[page * PAGE + offset] = (self.memory[page * PAGE + offset] + 1) % 256

    def span(self, first: int, last: int) -> tuple[int, int]:
        return self.address + first, self.address + last


@pytest.fixture
def room() -> Iterator[Room]:
    memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = addressof(c_char.from_buffer(memory))
    memset(address, 1, len(memory))
    yield Room(memory, address)


def watched(watch: WriteWatch, span: tuple[int, int]) -> WatchedSpan:
    return watch.watch([span])[span]


@needs_scans
def test_each_write_gives_another_number_and_nothing_else_does(room: Room) -> None:
    watch = WriteWatch()
    its = watched(watch, room.span(0, PAGES * PAGE))
    seen = {its.writes}
    for page in range(PAGES):
        watch.look()
        assert its.writes in seen
        room.put(page, 17)
        watch.look()
        assert its.writes not in seen
        seen.add(its.writes)


@needs_scans
def test_ctrl_c_at_any_instruction_of_a_look_loses_no_write(room: Room) -> None:
    files = write_watch.__file__, page_scan.__file__
    watch, all_of_it = WriteWatch(), room.span(0, PAGES * PAGE)
    its = watched(watch, all_of_it)
    for instruction in itertools.count():
        before = its.writes
        room.put(3)
        interrupt = Interrupt(instruction, files)
        with suppress(KeyboardInterrupt), interrupt.on():
            watch._look()
        if watch.state.takes & 1 == 0 and its.writes == before:  # calls are not refused for these
            assert watch._scan is not None and watch._scan.take_written(all_of_it)
            room.put(3)
        watch.look()
        assert its.writes != before and not watch.state.takes & 1
        if interrupt.left >= 0:
            assert instruction > 50
            return


@needs_scans
def test_the_kernel_and_pointers_write_too(room: Room) -> None:
    watch = WriteWatch()
    its = watched(watch, room.span(0, PAGES * PAGE))
    before = its.writes
    with open(__file__, "rb") as file:
        os.preadv(file.fileno(), [memoryview(room.memory)[5:9]], 0)
    watch.look()
    assert its.writes != before
    before = its.writes
    memmove(room.address + 3 * PAGE, b"x", 1)
    watch.look()
    assert its.writes != before


@needs_scans
def test_a_neighbour_on_the_same_page_makes_an_edge_loose_and_is_no_write(room: Room) -> None:
    watch = WriteWatch()
    start, end = room.span(100, 6 * PAGE + 50)
    its = watched(watch, (start, end))
    assert its.edges == ((start, room.address + PAGE), (room.address + 6 * PAGE, end))
    before, looks = its.writes, its.looks
    assert its.loose == (False, False) and its.pages == room.span(0, 7 * PAGE)
    room.put(0, 20)
    watch.look()
    assert its.writes == before and its.looks != looks
    assert its.loose == (True, False) and its.pages == room.span(PAGE, 7 * PAGE)
    room.put(6, 60)
    watch.look()
    assert (its.writes, its.loose) == (before, (True, True))
    assert its.pages == room.span(PAGE, 6 * PAGE)
    room.put(7)
    room.put(3)
    watch.look()
    assert its.writes != before


@needs_scans
def test_edges_written_with_all_of_their_span_stay_protected(room: Room) -> None:
    watch = WriteWatch()
    its = watched(watch, room.span(100, 6 * PAGE + 50))
    for _ in range(3):
        before = its.writes
        for page in range(7):
            room.put(page, 10)
        watch.look()
        assert its.writes != before and its.loose == (False, False)
    before, looks = its.writes, its.looks
    room.put(6, 10)
    watch.look()
    assert its.writes == before and its.looks != looks and its.loose == (False, True)


@needs_scans
def test_spans_that_meet_where_a_page_ends_have_no_edge_there(room: Room) -> None:
    watch = WriteWatch()
    before = watched(watch, room.span(0, 4 * PAGE))
    after = watched(watch, room.span(4 * PAGE, 8 * PAGE))
    for _ in range(3):
        room.put(3)
        room.put(4)
        watch.look()
    assert before.loose == after.loose == (False, False)
    for page, its in ((3, before), (4, after)):
        known = its.writes
        room.put(page)
        watch.look()
        assert its.writes != known


@needs_scans
def test_a_look_asks_each_watch_a_few_times_however_many_there_are(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, asked = WriteWatch(), []
    pages = WatchedSpan.pages.fget
    assert pages is not None
    monkeypatch.setattr(WatchedSpan, "pages", property(lambda its: asked.append(its) or pages(its)))
    step = 5 * PAGE + 1
    memory = mmap.mmap(-1, 300 * step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = addressof(c_char.from_buffer(memory))
    spans = [(address + i * step, address + i * step + 2 * PAGE + 1) for i in range(300)]
    kept = watch.watch(spans)
    assert len(kept) == 300 and len(asked) <= 3 * 300
    asked.clear()
    watch.look()
    assert 300 <= len(asked) <= 3 * 300


@needs_scans
def test_whoever_looks_tells_all_that_watch_the_same_memory(room: Room) -> None:
    watch = WriteWatch()
    whole = watched(watch, room.span(0, PAGES * PAGE))
    room.put(2)
    part = watched(watch, room.span(PAGE, 4 * PAGE))  # begins by taking what was written
    numbers = part.writes, whole.writes
    watch.look()
    assert (part.writes, whole.writes) == numbers
    room.put(5)
    watch.look()
    assert part.writes == numbers[0] and whole.writes != numbers[1]
    room.put(3)
    watch.look()
    assert part.writes == whole.writes != numbers[0]


@needs_scans
def test_a_write_before_somebody_else_begins_to_watch_is_told(room: Room) -> None:
    watch = WriteWatch()
    whole = watched(watch, room.span(0, PAGES * PAGE))
    before = whole.writes
    room.put(2)
    part = watched(watch, room.span(PAGE, 4 * PAGE))
    assert whole.writes != before and part.writes != before


@needs_scans
def test_other_memory_in_the_place_of_watched_is_a_write() -> None:
    watch = WriteWatch()
    first = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = addressof(c_char.from_buffer(first))
    memset(address, 1, len(first))
    its = watched(watch, (address, address + PAGES * PAGE))
    before = its.writes
    libc = page_scan._libc()
    libc.mmap.restype = page_scan.ctypes.c_void_p
    fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
    word = page_scan.ctypes.c_size_t
    again = libc.mmap(page_scan.ctypes.c_void_p(address), word(PAGES * PAGE), 3, fixed, -1, word(0))
    assert again == address
    watch.look()
    after = its.writes
    assert after is not None and after != before
    memset(address + 3 * PAGE, 1, 1)
    watch.look()
    assert its.writes != after


@needs_scans
def test_a_child_finds_its_own_writes_and_those_before_the_fork(room: Room) -> None:
    watch = WriteWatch()
    its = watched(watch, room.span(0, PAGES * PAGE))
    before = its.writes
    room.put(1)
    watch.before_fork()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            watch.in_child()
            inherited = its.writes
            watch.look()
            quiet = its.writes == inherited != before
            room.put(4)
            watch.look()
            status = 0 if quiet and its.writes != inherited else 2
        finally:
            os._exit(status)
    watch.in_parent()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    before = its.writes
    watch.look()
    assert its.writes == before
    room.put(4)
    watch.look()
    assert its.writes != before


@needs_scans
def test_private_mappings_of_files(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"w" * PAGES * PAGE)
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    address = addressof(c_char.from_buffer(memory))
    watch = WriteWatch()
    its = watched(watch, (address, address + PAGES * PAGE))
    before = its.writes
    assert memory[:] == b"w" * PAGES * PAGE
    watch.look()
    assert its.writes == before
    memory[PAGE] = 0
    watch.look()
    assert its.writes != before


def test_a_system_that_refuses_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: page_scan.PageScan) -> None:
        raise PermissionError("userfaultfd is not for you")

    monkeypatch.setattr(page_scan.PageScan, "__init__", refuse)
    watch = WriteWatch()
    assert not watch.allowed and watch.watch([(0, PAGES * PAGE)]) == {}
    watch.look()
    watch.before_fork()
    watch.in_child()


@needs_scans
def test_epochs_are_other_ones_in_children_and_none_where_writes_are_no_page_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = WriteWatch()
    assert watch.allowed
    assert watch.state.epoch == 1
    watch.before_fork()
    watch.in_child()
    assert watch.state.epoch == 2
    monkeypatch.setattr(page_scan, "page_faults", lambda: 7)
    other = WriteWatch()
    assert other.allowed
    assert other.state.epoch == 0


def test_ranges_that_touch_become_one() -> None:
    assert merged([(8, 9), (0, 2), (2, 3), (5, 5), (1, 3)]) == [(0, 3), (8, 9)]
    assert merged([]) == []
