"""When a server that failed is asked again, by a clock that the tests set."""

import pytest

from kernelmill.store.remote import FIRST_SECONDS, LONGEST_SECONDS, BackOff


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def fail(backoff):
    assert backoff.may_ask()
    backoff.failed(backoff.now())


def test_a_server_that_serves_is_asked_always(clock):
    backoff = BackOff(clock)
    assert all(backoff.may_ask() for _ in range(5))
    backoff.served()
    assert backoff.may_ask() and not backoff.is_resting


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_pauses_double_up_to_a_minute(clock, chance):
    backoff = BackOff(clock, lambda: chance)
    pauses = []
    for _ in range(14):
        fail(backoff)
        begun = clock.now
        while backoff.is_resting:
            assert not backoff.may_ask()
            clock.now += FIRST_SECONDS / 100
        pauses.append(clock.now - begun)
    part = 1 - chance / 2
    expected = [min(FIRST_SECONDS * 2**n, LONGEST_SECONDS) * part for n in range(14)]
    assert pauses == pytest.approx(expected, abs=FIRST_SECONDS / 50)


def test_one_answer_ends_it(clock):
    backoff = BackOff(clock)
    for _ in range(5):
        fail(backoff)
        clock.now += LONGEST_SECONDS
    assert backoff.may_ask()
    backoff.served()
    assert all(backoff.may_ask() for _ in range(5))
    fail(backoff)
    clock.now += FIRST_SECONDS
    assert backoff.may_ask()


def test_after_a_failure_one_at_a_time_asks(clock):
    backoff = BackOff(clock)
    fail(backoff)
    clock.now += FIRST_SECONDS
    assert [backoff.may_ask() for _ in range(3)] == [True, False, False]


def test_failures_at_the_same_time_are_one(clock):
    backoff = BackOff(clock, lambda: 0.0)
    asked = [backoff.now() for _ in range(4) if backoff.may_ask()]
    clock.now += 0.2
    for when in asked:
        backoff.failed(when)
    clock.now += FIRST_SECONDS
    assert backoff.may_ask()
