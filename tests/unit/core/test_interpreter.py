"""Builds of Python that cannot run it are refused in words."""

import sys

import pytest

from kernelmill.core.errors import InterpreterError
from kernelmill.core.interpreter import check_interpreter


def test_builds_without_the_global_lock_are_refused(monkeypatch):
    check_interpreter()
    monkeypatch.setattr(sys, "abiflags", "t")
    with pytest.raises(InterpreterError, match="free-threaded"):
        check_interpreter()
    assert issubclass(InterpreterError, ImportError)
