"""When calls have fewer threads, as some were held up: the rules, at times that a test says."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmill.runtime import layout
from kernelmill.runtime.layout import FrameHeader
from tools.native_entry import FLAGS, header

NATIVE = Path(layout.__file__).parent / "native"
MILLISECOND = 10**6
SECOND = 10**9


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The rules, as a compiler makes them."""
    folder = tmp_path_factory.mktemp("contention")
    (folder / "layout.h").write_text(header())
    source, made = Path(__file__).with_name("contention_at_times.c"), folder / "contention.so"
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, "-Wno-unused-function", "-shared"]
    command += ["-I", str(folder), "-I", str(NATIVE), "-o", str(made), str(source)]
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}
    subprocess.run(command, check=True, env=caches, cwd=folder)
    loaded = ctypes.CDLL(str(made))
    loaded.threads_at.restype = ctypes.c_int64
    return loaded


class Calls:
    """Calls of one frame, one behind the other, of up to so many threads."""

    def __init__(self, library: ctypes.CDLL, threads: int = 2) -> None:
        self.library, self.most = library, threads
        self.frame = FrameHeader()
        self.now = 100 * SECOND
        self.free = 0  # hundredths of a second in which processors were free
        self.text: bytes | None = b""

    def stat(self) -> ctypes.c_char_p:
        """/proc/stat: 2 processors, one of which a process of a low priority may have."""
        half = self.free // 3
        text = f"cpu  7000 {half} 10 {self.free - half - 1} 1 9 9 9 0 0\ncpu0 1 2 3 4 5\n"
        return ctypes.c_char_p(None if self.text is None else text.encode())

    def threads(self) -> int:
        """How many a call has now."""
        frame = ctypes.byref(self.frame)
        return self.library.threads_at(
            frame, ctypes.c_int64(self.now), self.stat(), ctypes.c_int64(self.most)
        )

    def wait(self, nanoseconds: int, free: bool = False) -> None:
        """Time goes by, in which a processor is free or not."""
        self.now += nanoseconds
        self.free += nanoseconds // (10 * MILLISECOND) if free else 0

    def call(self, took: float, lost: float) -> int:
        """A call of one region, in milliseconds; how many threads it had."""
        threads = self.threads()
        began = self.now
        self.wait(int(took * MILLISECOND))
        numbers = (began, self.now, int(lost * MILLISECOND))
        if threads > 1:
            self.library.region(
                ctypes.byref(self.frame), *map(ctypes.c_int64, numbers), self.stat(),
                ctypes.c_int64(threads),
            )  # fmt: skip
        return threads

    def until_limited(self) -> int:
        """How many calls of 8 ms, 6 of them lost, there are until a call has fewer threads."""
        calls = 0
        while self.call(8, 6) == self.most:
            calls += 1
            assert calls < 100
        return calls


def test_threads_that_are_held_up_call_after_call_become_one_less(library: ctypes.CDLL) -> None:
    calls = Calls(library)
    assert calls.until_limited() == 4
    assert (calls.threads(), calls.frame.held_up) == (1, 1)
    wider = Calls(library, threads=16)
    wider.until_limited()
    assert wider.threads() == 15


def test_what_is_lost_now_and_then_changes_nothing(library: ctypes.CDLL) -> None:
    calls = Calls(library)
    for _ in range(100):
        assert calls.call(10, 6) == 2
        assert [calls.call(2.5, 0) for _ in range(3)] == [2] * 3
    assert calls.frame.held_up == 0


def test_less_than_their_share_and_less_than_a_time_slice_changes_nothing(
    library: ctypes.CDLL,
) -> None:
    long, short = Calls(library), Calls(library)
    assert [long.call(100, 45) for _ in range(50)] == [2] * 50
    assert [short.call(0.5, 0.4) for _ in range(500)] == [2] * 500


def test_more_is_tried_when_processors_are_free(library: ctypes.CDLL) -> None:
    calls = Calls(library)
    calls.until_limited()
    calls.wait(SECOND)
    assert calls.threads() == 1
    calls.wait(SECOND, free=True)
    assert calls.threads() == 2


def test_more_is_tried_some_time_in_any_case(library: ctypes.CDLL) -> None:
    calls = Calls(library)
    calls.until_limited()
    tried = 0
    while calls.threads() == 1:
        calls.wait(SECOND // 4)
        tried += 1
    assert 36 <= tried <= 42


def test_more_is_tried_after_a_pause_where_nobody_says_what_is_free(library: ctypes.CDLL) -> None:
    calls = Calls(library)
    calls.text = None
    calls.until_limited()
    assert calls.threads() == 1
    calls.wait(SECOND // 4)
    assert calls.threads() == 2


def test_pauses_grow_while_trials_fail(library: ctypes.CDLL) -> None:
    calls = Calls(library)
    pauses: list[int] = []
    for _ in range(7):
        calls.until_limited()
        pauses.append(calls.frame.pause // MILLISECOND)
        calls.wait(calls.frame.pause, free=True)
    assert pauses == [250, 500, 1000, 2000, 4000, 4000, 4000]
    assert calls.threads() == 2
    calls.wait(20 * SECOND)  # a trial that went well
    calls.until_limited()
    assert calls.frame.pause == 250 * MILLISECOND


def test_a_trial_begins_with_time_for_waking_threads(library: ctypes.CDLL) -> None:
    calls = Calls(library)
    calls.until_limited()
    calls.wait(SECOND, free=True)
    assert [calls.call(20, 18), calls.call(20, 18)] == [2, 2]
    assert [calls.call(2, 0) for _ in range(20)] == [2] * 20
    assert calls.frame.held_up == 1
