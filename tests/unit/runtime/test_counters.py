"""Sums of counters: what several programs share is counted once."""

from kernelmill.runtime.counters import summed


def test_what_belongs_to_one_object_is_counted_once() -> None:
    weight, other = object(), object()
    first = [("packed_bytes", weight, 100), ("calls", "a", 2)]
    second = [("packed_bytes", weight, 100), ("packed_bytes", other, 10), ("calls", "b", 3)]
    assert summed([*first, *second]) == {"packed_bytes": 110, "calls": 5}


def test_of_one_call_the_most_of_any_program_counts() -> None:
    counts = [("launches", "a", 3), ("launches", "b", 5), ("aten_calls", "a", 0)]
    assert summed(counts) == {"launches": 5, "aten_calls": 0}


def test_the_last_number_of_an_object_holds() -> None:
    assert summed([("calls", "a", 1), ("calls", "a", 4)]) == {"calls": 4}
