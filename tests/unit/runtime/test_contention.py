"""When calls have fewer threads, as some were held up: the rules, at times that a test says."""

import ctypes
from pathlib import Path

import pytest

from kernelmill.runtime.layout import FrameHeader
from kernelmill.runtime.linking.linker import LinkedObject, link
from tests.unit.runtime.kernels import compile_text
from tools.native_entry import SOURCE, TARGETS, compiled

MILLISECOND = 10**6
SECOND = 10**9


class Rules:
    """Functions of contention_at_times.c."""

    def __init__(self, code: LinkedObject) -> None:
        frame, number, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
        threads_at = ctypes.CFUNCTYPE(number, frame, number, number, text, number)
        region = ctypes.CFUNCTYPE(None, frame, number, number, number, number, text, number)
        self.threads_at, self.region = threads_at(code["threads_at"]), region(code["region"])
        self._code = code


def linked(source: str, *names: str) -> LinkedObject:
    """Functions of a C source beside this file, as a compiler makes them."""
    path = Path(__file__).with_name(source)
    text = compiled(TARGETS[0], "-I", str(SOURCE.parent), source=path)
    return link(names, compile_text(text))


@pytest.fixture(scope="module")
def rules() -> Rules:
    """The rules."""
    return Rules(linked("contention_at_times.c", "threads_at", "region"))


class Calls:
    """Calls of one frame, one behind the other, of up to so many threads."""

    def __init__(self, rules: Rules, threads: int = 2) -> None:
        self.rules, self.most = rules, threads
        self.frame = FrameHeader()
        self.now = 100 * SECOND
        self.free = 0  # hundredths of a second in which processors were free
        self.ran = 0  # nanoseconds of all threads of the process
        self.tells = True

    def stat(self) -> bytes | None:
        """/proc/stat: a third of the free time has gone to processes of a low priority."""
        nice = self.free // 3
        text = f"cpu  7000 {nice} 10 {self.free - nice - 1} 1 9 9 9 0 0\ncpu0 1 2 3 4 5\n"
        return text.encode() if self.tells else None

    def threads(self) -> int:
        """How many a call has now."""
        frame = ctypes.addressof(self.frame)
        return self.rules.threads_at(frame, self.now, self.ran, self.stat(), self.most)

    def wait(self, nanoseconds: int, free: int = 0, own: float = 1.0) -> None:
        """Time goes by, in which so many processors are free, and so many the process' own."""
        self.now += nanoseconds
        self.free += free * nanoseconds // (10 * MILLISECOND)
        self.ran += int(own * nanoseconds)

    def call(self, took: float, lost: float) -> int:
        """A call of one region, in milliseconds, of which each thread has lost so many; how many
        threads it had."""
        threads = self.threads()
        began = self.now
        self.wait(int(took * MILLISECOND))
        frame, nanoseconds = ctypes.addressof(self.frame), int(lost * threads * MILLISECOND)
        if threads > 1:
            told = self.ran, nanoseconds, self.stat()
            self.rules.region(frame, began, self.now, *told, threads)
        return threads

    def until_limited(self) -> int:
        """How many calls of 8 ms, 6 of them lost, there are until a call has fewer threads."""
        calls = 0
        while self.call(8, 6) == self.most:
            calls += 1
            assert calls < 100
        return calls


def test_threads_that_are_held_up_call_after_call_become_one_less(rules: Rules) -> None:
    calls = Calls(rules)
    assert calls.until_limited() == 4
    assert (calls.threads(), calls.frame.held_up) == (1, 1)
    wider = Calls(rules, threads=16)
    wider.until_limited()
    assert wider.threads() == 15


def test_what_is_lost_now_and_then_changes_nothing(rules: Rules) -> None:
    calls = Calls(rules)
    for _ in range(100):
        assert calls.call(10, 6) == 2
        assert [calls.call(2.5, 0) for _ in range(3)] == [2] * 3
    assert calls.frame.held_up == 0


def test_less_than_their_share_and_less_than_a_time_slice_changes_nothing(
    rules: Rules,
) -> None:
    long, short = Calls(rules), Calls(rules)
    assert [long.call(100, 45) for _ in range(50)] == [2] * 50
    assert [short.call(0.5, 0.4) for _ in range(500)] == [2] * 500


def test_more_is_tried_when_processors_are_free(rules: Rules) -> None:
    calls = Calls(rules)
    calls.until_limited()
    calls.wait(SECOND)
    assert calls.threads() == 1
    calls.wait(SECOND, free=1)
    assert calls.threads() == 2


def test_processors_that_other_programs_of_the_process_have_are_not_taken(rules: Rules) -> None:
    calls = Calls(rules)
    calls.until_limited()
    calls.wait(SECOND, own=1.3)  # beside a process that wants a whole one
    assert calls.threads() == 1
    calls.wait(SECOND, own=1.9)
    assert calls.threads() == 2


def test_what_the_process_does_not_use_is_no_room_where_another_one_has_the_rest(
    rules: Rules,
) -> None:
    calls = Calls(rules)
    calls.until_limited()
    calls.wait(SECOND, free=1, own=0.0)
    assert calls.threads() == 1
    calls.wait(SECOND, free=2, own=0.0)
    assert calls.threads() == 2


def test_more_is_tried_some_time_in_any_case(rules: Rules) -> None:
    """Later each time, as long as trials fail: each costs some calls."""
    calls = Calls(rules)
    for seconds in (5, 10, 20):
        calls.until_limited()
        tried = 0
        while calls.threads() == 1:
            calls.wait(SECOND // 4)
            tried += 1
        assert abs(tried - 4 * seconds) <= 4


def test_more_is_tried_after_a_pause_where_nobody_says_what_is_free(rules: Rules) -> None:
    calls = Calls(rules)
    calls.tells = False
    calls.until_limited()
    assert calls.threads() == 1
    calls.wait(SECOND // 4)
    assert calls.threads() == 2


def test_pauses_grow_while_trials_fail(rules: Rules) -> None:
    calls = Calls(rules)
    pauses: list[int] = []
    for _ in range(7):
        calls.until_limited()
        pauses.append(calls.frame.pause // MILLISECOND)
        calls.wait(calls.frame.pause, free=1)
    assert pauses == [250, 500, 1000, 2000, 4000, 4000, 4000]
    assert calls.threads() == 2
    calls.wait(20 * SECOND)  # a trial that went well
    calls.until_limited()
    assert calls.frame.pause == 250 * MILLISECOND


def test_a_trial_begins_with_time_for_waking_threads(rules: Rules) -> None:
    calls = Calls(rules)
    calls.until_limited()
    calls.wait(SECOND, free=1)
    assert [calls.call(20, 18), calls.call(20, 18)] == [2, 2]
    assert [calls.call(2, 0) for _ in range(20)] == [2] * 20
    assert calls.frame.held_up == 1


def test_what_threads_have_lost_is_their_time_away_and_that_of_those_who_wait_for_them() -> None:
    code = linked("lost_time.c", "lost_time")
    number = ctypes.c_int64
    function = ctypes.CFUNCTYPE(number, *[number] * 4, ctypes.c_void_p)(code["lost_time"])

    def lost(done_at: int, ended: int, waited: int, *away: int, threads: int = 2) -> int:
        return function(threads, done_at, ended, waited, (number * threads)(*away))

    # One thread did all, while the system did not let the other one run: nobody has waited.
    assert lost(7, 7, 0, 0, 7) == 7
    # In the time of four, the first waited for a task of the other one, which was away.
    assert lost(10, 10, 4, 0, 4) == 8
    assert lost(10, 10, 4, 0, 4, 0, 0, threads=4) == 16
    # All have waited for the end, whatever kept one from it.
    assert lost(7, 11, 0, 0, 7) == 15
    assert lost(7, 11, 0, 0, 0, 0, threads=3) == 12
    # A thread that ran while it is thought to have slept was not away.
    assert lost(7, 7, 0, -3, 2) == 2
    # Of a region that is not timed: what the first waited, and all with it.
    assert function(3, 7, 11, 2, None) == 18
