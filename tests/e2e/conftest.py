"""Fixtures of the end-to-end tests.

KERNELMILL_TEST_BACKEND=aot_eager runs the same tests on another backend: it tells an error of a
test (or of torch) from an error of the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

BACKEND = os.environ.get("KERNELMILL_TEST_BACKEND", "kernelmill")


@pytest.fixture
def backend() -> str:
    """The name given to torch.compile."""
    return BACKEND


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that the compiler gives up on is an error, not a fallback."""
    monkeypatch.setenv("KERNELMILL_STRICT", "1")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Programs run on two threads whatever machine this is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)
