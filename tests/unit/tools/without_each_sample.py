"""Tests that test_without_each.py has run without private parts."""

import os

import pytest

from kernelmill.runtime.memory.allocation import is_direct
from kernelmill.torch_internals import dispatch, native, tensors


def test_that_asks():
    assert dispatch._precision.works, "the precision"


def test_that_asks_for_the_same():
    assert dispatch._precision.works, "the precision"


@pytest.mark.needs_internal("native.packed")
def test_that_needs_what_it_asks_for():
    assert native._packed.works


def test_that_asks_in_vain():
    tensors.handle_of.require()


def test_that_ends_its_process():
    if not tensors.version_of.works:
        os._exit(7)


def test_after_it():
    assert tensors.version_of.works or os.environ["KERNELMILL_WITHOUT_INTERNALS"]


def test_of_what_imports_have_asked_for():
    assert is_direct, "direct"


def test_that_fails_with_all_parts():
    assert not dispatch._precision.works
