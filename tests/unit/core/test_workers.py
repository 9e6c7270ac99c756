"""Work in threads, and Ctrl-C at every instruction of the one that waits for it."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kernelmill.core import workers as module
from kernelmill.core.workers import Workers
from tests.forking import in_child
from tests.interrupted import Interrupt


def test_results_come_in_the_order_of_the_works() -> None:
    with Workers(3) as workers:
        works = [lambda n=n: time.sleep(0.001 * (n % 3)) or n for n in range(20)]
        assert list(workers.results(works)) == list(range(20))


def test_no_more_threads_than_asked_for() -> None:
    seen: set[int] = set()
    with Workers(2) as workers:
        list(workers.results([lambda: seen.add(threading.get_ident())] * 50))
    assert 1 <= len(seen) <= 2


def test_who_waits_is_told_of_an_error_before_the_rest_is_done() -> None:
    leave = threading.Event()

    def fail() -> bool:
        raise ValueError("no luck")

    with Workers(2) as workers:
        slow, failing = workers.submit(lambda: leave.wait(60)), workers.submit(fail)
        workers.wait([slow, failing])
        assert failing.is_done and not slow.is_done
        with pytest.raises(ValueError, match="no luck"):
            failing.result()
        with pytest.raises(RuntimeError, match="not done"):
            slow.result()
        workers.wait([slow], 0.001)
        assert not slow.is_done
        leave.set()
        workers.wait([slow])
        assert slow.result()


def test_what_has_not_begun_never_does() -> None:
    entered, leave, done = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        entered.set()
        assert leave.wait(60)
        done.append("first")

    with Workers(1) as workers:
        workers.submit(first)
        second = workers.submit(lambda: done.append("second"))
        assert entered.wait(60)
        threading.Timer(0.05, leave.set).start()
    assert done == ["first"] and not second.is_done


def test_a_child_that_is_forked_in_between_waits_for_nobody() -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        entered.set()
        assert leave.wait(60)

    with Workers(1) as workers:
        workers.submit(stay)
        assert entered.wait(60)
        in_child(workers.end)
        leave.set()


def _interrupted_everywhere(use: Callable[[list[int]], None], *files: str | None) -> int:
    """Whether `use` ended with what it began done, each time; how many instructions it had."""
    at = 0
    while True:
        interrupt, under_way = Interrupt(at, files), list[int]()

        def whole(interrupt: Interrupt = interrupt, under_way: list[int] = under_way) -> None:
            with interrupt.on(), pytest.raises(KeyboardInterrupt):
                use(under_way)
                raise KeyboardInterrupt

        whole()
        assert sum(under_way) == 0, f"work is under way after Ctrl-C at instruction {at}"
        if interrupt.left >= 0:
            return at
        at += 1


def test_ctrl_c_at_any_instruction_ends_what_is_under_way_and_waits_for_nothing_else() -> None:
    def use(under_way: list[int]) -> None:
        def work() -> None:
            under_way.append(1)
            time.sleep(0.001)
            under_way.append(-1)

        with Workers(2) as workers:
            jobs = [workers.submit(work) for _ in range(3)]
            workers.wait(jobs)

    assert _interrupted_everywhere(use, module.__file__) > 300


@pytest.mark.parametrize("most", [0, 1])
def test_work_is_done_where_the_system_gives_few_threads(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    given = []

    def start(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if len(given) == most:
            raise RuntimeError("can't start new thread")
        given.append(_thread.start_new_thread(function, arguments))

    monkeypatch.setattr("kernelmill.core.workers.start_new_thread", start)
    with Workers(4) as workers:
        assert list(workers.results(partial(abs, -n) for n in range(9))) == list(range(9))
