"""What a fork leaves behind, and what it does not."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import pytest

from kernelmill.core import after_fork
from kernelmill.core.after_fork import Overlapping, RenewedLock
from kernelmill.core.interpreter import collection_paused, quick_switches
from tests.forking import in_child


@contextmanager
def elsewhere(enter: Callable[[ExitStack], object]) -> Generator[None]:
    """Another thread has entered something, and stays there."""
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with ExitStack() as stack:
            enter(stack)
            entered.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    assert entered.wait(60)
    try:
        yield
    finally:
        leave.set()
        thread.join()


class Switch:
    def __init__(self) -> None:
        self.on = False

    def begin(self) -> None:
        self.on = True

    def end(self) -> None:
        self.on = False


def test_what_another_thread_has_begun_has_ended_in_a_child() -> None:
    switch = Switch()
    uses = Overlapping(switch.begin, switch.end)

    def child() -> None:
        assert not switch.on
        with uses.use():
            assert switch.on
        assert not switch.on

    with elsewhere(lambda stack: stack.enter_context(uses.use())):
        in_child(child)
        assert switch.on
    assert not switch.on


def test_a_child_keeps_what_its_own_thread_has_begun() -> None:
    switch = Switch()
    uses = Overlapping(switch.begin, switch.end)

    def child() -> None:
        with uses.use():
            assert switch.on
            in_child(lambda: None)
        assert switch.on
        inner.close()
        assert switch.on
        outer.close()
        assert not switch.on

    with elsewhere(lambda stack: stack.enter_context(uses.use())), ExitStack() as outer:
        outer.enter_context(uses.use())
        inner = ExitStack()
        inner.enter_context(uses.use())
        in_child(child)
        inner.close()


def test_a_fork_between_the_count_and_the_begin_ends_it_too() -> None:
    reached, leave, switch = threading.Event(), threading.Event(), Switch()

    def begin() -> None:
        if threading.current_thread() is not threading.main_thread():
            reached.set()
            leave.wait()
        switch.begin()

    uses = Overlapping(begin, switch.end)

    def use() -> None:
        with uses.use():
            pass

    def child() -> None:
        with uses.use():
            assert switch.on
        assert not switch.on

    thread = threading.Thread(target=use)
    thread.start()
    assert reached.wait(60)
    in_child(child)
    leave.set()
    thread.join()


def test_collection_and_turns_are_as_before_in_a_child() -> None:
    before = sys.getswitchinterval()

    def child() -> None:
        assert gc.isenabled() and sys.getswitchinterval() == before
        with collection_paused(), quick_switches():
            assert not gc.isenabled() and sys.getswitchinterval() < before
        assert gc.isenabled() and sys.getswitchinterval() == before

    gc.enable()
    with (
        elsewhere(lambda stack: stack.enter_context(collection_paused())),
        elsewhere(lambda stack: stack.enter_context(quick_switches())),
    ):
        assert not gc.isenabled() and sys.getswitchinterval() < before
        in_child(child)


def test_collection_that_was_off_is_off_in_a_child() -> None:
    gc.disable()
    try:
        with elsewhere(lambda stack: stack.enter_context(collection_paused())):
            in_child(lambda: pytest.fail("on") if gc.isenabled() else None)
    finally:
        gc.enable()


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_lock_that_another_thread_holds_is_free_in_a_child(make: Callable[[], object]) -> None:
    renewed = RenewedLock(make)  # type: ignore[arg-type]

    def child() -> None:
        with renewed.lock:
            pass

    with elsewhere(lambda stack: stack.enter_context(renewed.lock)):
        in_child(child)


def test_a_thread_that_forks_inside_of_a_lock_comes_out_of_it() -> None:
    renewed, forks = RenewedLock(), ExitStack()

    def child() -> None:
        forks.close()
        with renewed.lock:
            pass

    forks.enter_context(renewed.lock)
    in_child(child)
    forks.close()


@pytest.mark.skipif(not hasattr(functools.cached_property(len), "lock"), reason="it has no lock")
@pytest.mark.parametrize("package", ["kernelmill", "torch"])
def test_a_property_that_another_thread_works_out_can_be_read_in_a_child(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    reached, leave = threading.Event(), threading.Event()

    class Slow:
        @functools.cached_property
        def value(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                reached.set()
                leave.wait()
            return 1

    module = types.ModuleType(f"{package}.of_this_test")
    module.Slow = Slow  # type: ignore[attr-defined]
    Slow.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    assert reached.wait(60)
    in_child(lambda: Slow().value)
    leave.set()
    thread.join()


def test_what_nobody_has_any_more_is_forgotten() -> None:
    renewed = RenewedLock()
    assert renewed in after_fork._objects
    count = len(after_fork._objects)
    del renewed
    gc.collect()
    assert len(after_fork._objects) < count
