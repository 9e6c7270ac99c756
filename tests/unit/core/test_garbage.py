from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Generator

import pytest

from kernelmill.core.interpreter import collection_paused


@pytest.fixture(autouse=True)
def collection_on() -> Generator[None]:
    gc.enable()
    yield
    gc.enable()


def test_a_pause_ends_with_collection_on() -> None:
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_pause_ends_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), collection_paused():
        raise ValueError("inside")
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    with collection_paused():
        pass
    assert not gc.isenabled()


def test_overlapping_pauses_end_with_the_last() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collection_paused():
            entered.set()
            leave.wait(600)

    thread = threading.Thread(target=other)
    with collection_paused():
        thread.start()
        assert entered.wait(600)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(gc.get_freeze_count() > 0, reason="as Python 3.12, which begins so")
def test_what_was_made_in_a_pause_is_old_and_still_collected() -> None:
    class Cycle:
        pass

    with collection_paused():
        cycle = Cycle()
        cycle.itself = cycle  # type: ignore[attr-defined]
        gone = weakref.ref(cycle)
        del cycle
    assert gc.get_freeze_count() == 0
    gc.collect(1)
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_what_somebody_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        with collection_paused():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
