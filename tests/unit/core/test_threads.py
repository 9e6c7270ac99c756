"""Quick turns of threads are for the compiler alone, and end with it."""

from __future__ import annotations

import sys

import pytest

from kernelmill.core.interpreter import quick_switches


def test_turns_are_quick_inside_and_as_before_afterwards() -> None:
    before = sys.getswitchinterval()
    with quick_switches():
        inside = sys.getswitchinterval()
        with quick_switches():
            assert sys.getswitchinterval() == inside
        assert sys.getswitchinterval() == inside < before
    assert sys.getswitchinterval() == before


def test_an_error_ends_them_too() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ValueError), quick_switches():
        raise ValueError
    assert sys.getswitchinterval() == before
